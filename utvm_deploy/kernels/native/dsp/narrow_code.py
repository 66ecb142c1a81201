"""The inner block of fully connected layers with few outputs: all of them at a time.

Inputs are widened where they are multiplied, so nothing is kept, and no weights are filled up
beside the last inputs.

weights  int8 [four inputs][output][input]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    compare,
    extend16,
    load,
    multiply_add,
    multiply_long,
    saturate,
    shift_right,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text
from utvm_deploy.kernels.native.dsp.dense_layer import SCALING_WORDS

#: As many as there are registers for.
MOST_OUTPUTS = 7
QUAD = 4
#: Inputs of a turn of the loop.
STEP = 16
PARAMETERS = (
    "const int8_t *vector",
    "const int8_t *weights",
    "const int32_t *bias",
    "const int32_t *scaling",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t inputs",
    "int32_t outputs",
    "int32_t scaling_step",
)

_ACCUMULATORS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10")
_FREE = ("r2", "r3", "r11", "r12", "lr")
_SAVED_BYTES = 36
# Slots on the stack.
_LAST = 0  # the inputs of the last whole turn
_QUADS_END = 4
_REST = 8  # inputs behind them
_SCALING = 12
_FRAME_BYTES = 20


def pack_weights(weights: Array) -> Array:
    """[outputs, inputs] -> the layout above."""
    outputs, inputs = weights.shape
    quads = -(-inputs // QUAD)
    filled = np.zeros((outputs, quads * QUAD), dtype=np.int8)
    filled[:, :inputs] = weights
    return np.ascontiguousarray(filled.reshape(outputs, quads, QUAD).transpose(1, 0, 2)).reshape(-1)


def name_of(outputs: int, is_scaled_by_channel: bool) -> str:
    """The C function."""
    return f"utvm_narrow_{outputs}{'_channels' if is_scaled_by_channel else ''}"


@lru_cache(maxsize=16)
def narrow_text(core: str, outputs: int, is_scaled_by_channel: bool) -> str:
    """The C text of the function, ordered for a core."""
    routine = _routine(timing_of(core), outputs, is_scaled_by_channel)
    name = name_of(outputs, is_scaled_by_channel)
    return c_text(name, PARAMETERS, routine, portable="utvm_narrow")


def _routine(timing: Timing, outputs: int, is_scaled_by_channel: bool) -> Routine:
    r = Routine(timing)
    accumulators = _ACCUMULATORS[:outputs]
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"str r3, [sp, #{_SCALING}]",
        f"ldr r12, [sp, #{_FRAME_BYTES + _SAVED_BYTES + 8}]",
        f"bic r11, r12, #{STEP - 1}",
        f"bic r3, r12, #{QUAD - 1}",
        f"and r12, r12, #{QUAD - 1}",
        "add r3, r3, r0",
        "add lr, r11, r0",
        f"sub lr, lr, #{STEP}",
        f"strd lr, r3, [sp, #{_LAST}]",
        f"str r12, [sp, #{_REST}]",
        *(f"ldr {a}, [r2, #{4 * n}]" for n, a in enumerate(accumulators)),
        "cmp r11, #0",
        "beq 2f",
    )
    r.label("1", is_loop=True)
    # Early, so that the branch is known to be taken or not in time.
    early = [load("lr", "sp", _LAST), compare("r0", "lr")]
    r.straight([*early, *_quads(outputs, STEP // QUAD)], is_loop=True)
    r.plain("bne 1b")
    r.label("2")
    r.plain(f"ldr r3, [sp, #{_QUADS_END}]", "cmp r0, r3", "bhs 4f")
    r.label("3", is_loop=True)
    r.straight(_quads(outputs, 1), is_loop=True)
    r.plain(f"ldr r3, [sp, #{_QUADS_END}]", "cmp r0, r3", "blo 3b")
    r.label("4")
    _load_rest(r)
    r.straight(_quad(outputs, 0, ("r2", "r3"), ("r11", "r12", "lr")))
    r.label("5")
    r.straight(_finish(accumulators, is_scaled_by_channel))
    _clamp(r, accumulators)
    r.label("6")
    r.plain(*(f"strb {a}, [r1, #{n}]" for n, a in enumerate(accumulators)))
    r.plain(f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    return r


def _load_rest(r: Routine) -> None:
    """The one to three bytes that are left into r2; to label 5 where there are none."""
    r.plain(
        f"ldr r12, [sp, #{_REST}]",
        "cmp r12, #0",
        "beq 5f",
        "ldrb r2, [r0]",
        "cmp r12, #2",
        "itt ge",
        "ldrbge r3, [r0, #1]",
        "orrge r2, r2, r3, lsl #8",
        "itt gt",
        "ldrbgt r3, [r0, #2]",
        "orrgt r2, r2, r3, lsl #16",
    )


def _clamp(r: Routine, accumulators: Sequence[str]) -> None:
    """Outputs within the limits, r1 where they go; to label 6 where nothing limits them."""
    arguments = _FRAME_BYTES + _SAVED_BYTES
    r.plain(
        f"ldr r0, [sp, #{arguments}]",
        f"ldr r1, [sp, #{arguments + 4}]",
        "ldrd r2, r3, [r0]",
        "cmp r2, #-128",
        "it eq",
        "cmpeq r3, #127",
        "beq 6f",
    )
    for register in accumulators:
        r.plain(f"cmp {register}, r2", "it lt", f"movlt {register}, r2")
        r.plain(f"cmp {register}, r3", "it gt", f"movgt {register}, r3")


def _quads(outputs: int, quads: int) -> list[Instruction]:
    """So many times four inputs from r0, and their weights from r1, which both go on."""
    free = [*_FREE, *_ACCUMULATORS[outputs:]]
    # Two pairs of widened inputs in turn, where there are registers for them.
    wide = [(free[0], free[1])]
    rest = free[2:]
    if len(rest) > QUAD:
        wide.append((rest[0], rest[1]))
        rest = rest[2:]
    code: list[Instruction] = []
    for quad in range(quads):
        pair = wide[quad % len(wide)]
        code.append(load(pair[0], "r0", QUAD * quad))
        code += _quad(outputs, quad, pair, rest)
    return [*code, add("r0", "r0", QUAD * quads), add("r1", "r1", QUAD * outputs * quads)]


def _quad(outputs: int, quad: int, pair: tuple[str, str], ring: Sequence[str]) -> list[Instruction]:
    """Four inputs, which lie as bytes in the first of the pair, times the weights of all."""
    first, second = pair
    code = [extend16(second, first, 8), extend16(first, first)]
    for output, accumulator in enumerate(_ACCUMULATORS[:outputs]):
        number = quad * outputs + output
        low, high = (ring[(2 * number + n) % len(ring)] for n in range(2))
        code += [
            load(low, "r1", QUAD * number),
            extend16(high, low, 8),
            extend16(low, low),
            multiply_add("smlad", accumulator, low, first, accumulator),
            multiply_add("smlad", accumulator, high, second, accumulator),
        ]
    return code


def _finish(accumulators: Sequence[str], is_scaled_by_channel: bool) -> list[Instruction]:
    """Requantized to int8, in place."""
    code = [load("r0", "sp", _SCALING)]
    if not is_scaled_by_channel:
        code += [load("r1", "r0"), load("r11", "r0", 12)]
    for number, register in enumerate(accumulators):
        at = 4 * SCALING_WORDS * number if is_scaled_by_channel else 0
        low, high = (("r2", "r3"), ("r12", "lr"))[number % 2]
        if is_scaled_by_channel:
            code += [load("r1", "r0", at), load("r11", "r0", at + 12)]
        code += [
            load(low, "r0", at + 4),
            load(high, "r0", at + 8),
            multiply_long(low, high, register, "r1"),
            shift_right(high, high, "r11"),
            saturate(register, high, 8),
        ]
    return code
