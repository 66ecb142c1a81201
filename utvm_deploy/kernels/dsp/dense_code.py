"""The inner block of fully connected layers: four outputs, weights streamed once.

Two outputs share a word of weights and one SXTB16: its halfwords are 256 b + a + 128, where a and b
are weights of the two. Multiplied as they are they give 256 B + A + 128 X, with A and B the sums
wanted and X that of the inputs; the high bytes, extracted, give B, and A is what remains.

weights  int8 [four outputs][quad][phase][pair of outputs][lane][a + 128, b], k = 4 q + 2 l + f
bias     int32 [two outputs][bias of a + 256 bias of b, bias of b]
scaling  int32 [multiplier, low and high word of the offset, shift - 32, limits]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.dsp.assembly import (
    Instruction,
    add,
    add_shifted,
    compare,
    extend16,
    insert_byte,
    load,
    load_next,
    move,
    multiply_add,
    multiply_long,
    saturate,
    shift_right,
    store,
    store_next,
    subtract,
)
from utvm_deploy.kernels.dsp.gemm import selected
from utvm_deploy.kernels.dsp.order import timing_of
from utvm_deploy.kernels.dsp.routine import Routine, c_text

OUTPUTS = 4
#: The inner loop's step.
STEP = 16
NAME = "utvm_dense"
PARAMETERS = (
    "const int8_t *vector",
    "const int8_t *weights",
    "const int32_t *bias",
    "const int32_t *scaling",
    "int8_t *output",
    "int32_t inputs",
    "int32_t outputs",
)

_ACCUMULATORS = ("r4", "r5", "r6", "r7")
_SAVED_BYTES = 36
# Slots on the stack.
_BIAS = 0
_VECTOR = 4
_OFFSET = 8  # 128 times the sum of all inputs
_SCALING = 12
_OUTPUT = 16
_LEFT = 20
_LOW = 24
_HIGH = 28
_CLAMPS = 32
_END = 36  # of the vector
_FRAME_BYTES = 40


def pack_weights(weights: Array) -> Array:
    """[outputs, inputs] -> the layout above."""
    outputs, inputs = weights.shape
    groups, padded = -(-outputs // OUTPUTS), padded_inputs(inputs)
    filled = np.zeros((groups * OUTPUTS, padded), dtype=np.int16)
    filled[:outputs, :inputs] = weights
    # group, pair, side, quad, lane, phase -> group, quad, phase, pair, lane, side
    split = filled.reshape(groups, 2, 2, padded // 4, 2, 2).transpose(0, 3, 5, 1, 4, 2).copy()
    split[..., 0] ^= -128
    packed: Array = split.astype(np.int8).reshape(-1)
    return packed


def pack_bias(bias: Array) -> Array:
    """What the accumulators start with, so that a's is right when 256 b is taken off."""
    outputs = bias.size
    filled = np.zeros((-(-outputs // OUTPUTS) * OUTPUTS // 2, 2), dtype=np.int64)
    filled.reshape(-1)[:outputs] = bias
    filled[:, 0] += 256 * filled[:, 1]
    wrapped: Array = filled.reshape(-1).astype(np.uint32).view(np.int32)
    return wrapped


def padded_inputs(inputs: int) -> int:
    """Inputs that the inner loop does."""
    return -(-inputs // STEP) * STEP


@lru_cache(maxsize=8)
def dense_text(core: str) -> str:
    """The C text of ``utvm_dense``, ordered for a core."""
    return c_text(NAME, PARAMETERS, _routine(timing_of(core)))


def _routine(timing: Timing) -> Routine:
    r = Routine(timing)
    arguments = _FRAME_BYTES + _SAVED_BYTES
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"str r2, [sp, #{_BIAS}]",
        f"str r0, [sp, #{_VECTOR}]",
        f"str r3, [sp, #{_SCALING}]",
        f"ldr r4, [sp, #{arguments}]",
        f"str r4, [sp, #{_OUTPUT}]",
        f"ldr r5, [sp, #{arguments + 8}]",
        f"str r5, [sp, #{_LEFT}]",
        "ldrsb r8, [r3, #16]",
        "ldrsb r9, [r3, #20]",
        "mov r10, #0x01010101",
        "cmp r8, #-128",
        "it eq",
        "cmpeq r9, #127",
        "ite eq",
        "moveq r12, #0",
        "movne r12, #1",
        "uxtb r8, r8",
        "uxtb r9, r9",
        "mul r8, r8, r10",
        "mul r9, r9, r10",
        f"strd r8, r9, [sp, #{_LOW}]",
        f"str r12, [sp, #{_CLAMPS}]",
        f"ldr r3, [sp, #{arguments + 4}]",
        "add r3, r3, r0",
        "mov r10, #0x00010001",
        "mov r4, #0",
        "sub r1, r1, #4",  # the inner loop's offsets count from one word before
    )
    r.label("1", is_loop=True)
    code: list[Instruction] = []
    for number in range(STEP // 4):
        word, other = (("r2", "r8"), ("r9", "r11"), ("r12", "lr"))[number % 3]
        code += [
            load_next(word, "r0", 4),
            extend16(other, word),
            extend16(word, word, 8),
            multiply_add("smlad", "r4", other, "r10", "r4"),
            multiply_add("smlad", "r4", word, "r10", "r4"),
        ]
    r.straight([*code, compare("r0", "r3")], is_loop=True)
    r.plain("bne 1b", f"str r3, [sp, #{_END}]", "lsl r4, r4, #7", f"str r4, [sp, #{_OFFSET}]")
    r.label("2")  # four more outputs
    r.straight(
        [
            load("r0", "sp", _VECTOR),
            load("r3", "sp", _END),
            load("r8", "sp", _BIAS),
            *(load(a, "r8", 4 * n) for n, a in enumerate(_ACCUMULATORS)),
            add("r8", "r8", 4 * OUTPUTS),
            store("r8", "sp", _BIAS),
        ]
    )
    r.label("3", is_loop=True)
    r.straight(_loop(), is_loop=True)
    r.plain("bne 3b")
    r.straight(_finish())
    r.plain("bne 5f")
    r.label("4")
    r.plain("subs r9, r9, #4", "blt 6f")
    r.straight(
        [
            store_next("r4", "r11", 4),
            store("r11", "sp", _OUTPUT),
            store("r9", "sp", _LEFT),
        ]
    )
    r.plain("bne 2b", "b 7f")
    r.label("5")
    bounds = [load("r8", "sp", _LOW), load("r12", "sp", _HIGH)]
    low = selected("r10", "r4", "r8", "r4", "r8")
    r.straight([*bounds, *low, *selected("r10", "r12", "r4", "r4", "r12")])
    r.plain("b 4b")
    r.label("6")
    r.plain(
        f"adds r9, r9, #{OUTPUTS}",
        "8:",
        "strb r4, [r11], #1",
        "lsr r4, r4, #8",
        "subs r9, #1",
        "bgt 8b",
    )
    r.label("7")
    r.plain(f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    return r


def _loop() -> list[Instruction]:
    ring = ("r2", "r8", "r9", "r10", "r11", "r12", "lr")
    code: list[Instruction] = []
    values = 0

    def fresh() -> str:
        nonlocal values
        values += 1
        return ring[(values - 1) % len(ring)]

    last = STEP // 4 - 1
    for quad in range(last + 1):
        word, even = fresh(), fresh()
        code += [
            load_next(word, "r0", 4),
            extend16(even, word),
            extend16(word, word, 8),
        ]
        for phase, x in enumerate((even, word)):
            for pair in range(2):
                w = fresh()
                while w in (even, word):
                    w = fresh()
                a, b = _ACCUMULATORS[2 * pair], _ACCUMULATORS[2 * pair + 1]
                is_last = quad == last and phase == 1 and pair == 1
                offset = 16 * quad + 8 * phase + 4 * pair + 4
                weights = load(w, "r1", offset)
                if is_last:
                    weights = load(w, "r1", offset, write_back=True)
                code += [
                    weights,
                    multiply_add("smlad", a, w, x, a),
                    extend16(w, w, 8),
                    multiply_add("smlad", b, w, x, b),
                ]
    code.append(compare("r0", "r3"))
    return code


def _finish() -> list[Instruction]:
    """Requantized and packed in r4; r8 tells whether to clamp."""
    code = [
        load("r8", "sp", _OFFSET),
        load("r10", "sp", _SCALING),
        load("r2", "r10"),
        load("r0", "r10", 12),
    ]
    for a, b in (_ACCUMULATORS[:2], _ACCUMULATORS[2:]):
        code += [add_shifted(a, a, b, "lsl #8", name="sub"), subtract(a, a, "r8")]
    code += [load("r8", "r10", 4), load("r10", "r10", 8)]
    for number, register in enumerate(_ACCUMULATORS):
        low, high = (("r11", "r12"), ("lr", "r3"))[number % 2]
        code += [
            move(low, "r8"),
            move(high, "r10"),
            multiply_long(low, high, register, "r2"),
            shift_right(high, high, "r0"),
            saturate(register, high, 8),
        ]
    code += [insert_byte("r4", other, n + 1) for n, other in enumerate(_ACCUMULATORS[1:])]
    code += [
        load("r8", "sp", _CLAMPS),
        load("r9", "sp", _LEFT),
        load("r11", "sp", _OUTPUT),
        compare("r8", 0),
    ]
    return code
