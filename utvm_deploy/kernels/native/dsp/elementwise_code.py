"""Elementwise operators of two inputs, a word of each at a time: the assembly and its C.

All have the parameters of ``PARAMETERS``; ``numbers`` are multiplier, offset and shift of the
output, its limits, minus the zero point of either side (twice, as halves of a word), and one that
the operator names; behind them lies a table where there is one.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.cores.timing import Kind, Timing
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.isa.dsp import selected
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add_shifted,
    compare,
    extend16_add,
    extend_byte,
    insert_byte,
    load,
    load_next,
    multiply,
    multiply_add,
    saturate,
    shift_right,
    simd,
    store_next,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text, helper
from utvm_deploy.kernels.native.dsp.tile import scaled

PARAMETERS = (
    "const int8_t *left",
    "const int8_t *right",
    "const int32_t *numbers",
    "int8_t *output",
    "int32_t count",
)
#: How many numbers there are before the table.
NUMBERS = 8
#: ADD and SUB shift the right side by so much; the left one is looked up.
EXACT_SHIFT = 19

ADD, SUBTRACT, MULTIPLY, PRELU, EXTREMUM = "add", "subtract", "multiply", "prelu", "extremum"

_WORD = 4
_SAVED_BYTES = 36
_FRAME_BYTES = 12
_LOW, _HIGH = 4, 8


@lru_cache(maxsize=16)
def pairs_texts(core: str, operation: str) -> tuple[str, ...]:
    """The C texts of ``utvm_OPERATION_pairs`` and what it calls, ordered for a core."""
    timing = timing_of(core)
    texts = [shared_text("utvm_word"), shared_text("utvm_bytes"), shared_text("utvm_scale")]
    if operation in (MULTIPLY, PRELU):
        texts.append(_words(MULTIPLY, _routine(timing, MULTIPLY)))
    if operation in (ADD, SUBTRACT):
        texts.append(_words(operation, _routine(timing, operation)))
    if operation in (PRELU, EXTREMUM):
        texts.append(helper(f"utvm_{operation}_words"))
    return (*texts, replaced(helper("utvm_pairs"), ("OPERATION", operation, 6)))


def _words(operation: str, routine: Routine) -> str:
    return c_text(f"utvm_{operation}_words", PARAMETERS, routine)


def _routine(timing: Timing, operation: str) -> Routine:
    r = Routine(timing)
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        "ldr r4, [r2]",
        "ldr r5, [r2, #4]",
        "ldr r6, [r2, #8]",
        "ldrsb r8, [r2, #12]",
        "ldrsb r9, [r2, #16]",
        f"ldr r7, [sp, #{_FRAME_BYTES + _SAVED_BYTES}]",
        "add r7, r7, r0",
        "str r7, [sp, #0]",
        "mov r10, #0x01010101",
        "cmp r8, #-128",
        "it eq",
        "cmpeq r9, #127",
        "uxtb r8, r8",
        "uxtb r9, r9",
        "mul r8, r8, r10",
        "mul r9, r9, r10",
        f"strd r8, r9, [sp, #{_LOW}]",
    )
    if operation == MULTIPLY:
        r.plain("ldr r7, [r2, #20]", "ldr r2, [r2, #24]", "bne 2f")
        word, end = _product(), "lr"
    else:
        r.plain(f"add r2, r2, #{4 * NUMBERS}", "bne 2f")
        word, end = _sum(subtracts=operation == SUBTRACT), "r7"
    finish = [store_next("lr", "r3", 4), load(end, "sp"), compare("r0", end)]
    r.label("1", is_loop=True)
    r.straight([*word, *finish], is_loop=True)
    r.plain("bne 1b", "3:", f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    r.label("2", is_loop=True)
    bounds = [load("r9", "sp", _LOW), load("r10", "sp", _HIGH)]
    low = selected("r11", "lr", "r9", "lr", "r9")
    high = selected("r11", "r10", "lr", "lr", "r10")
    r.straight([*word, *bounds, *low, *high, *finish], is_loop=True)
    r.plain("bne 2b", "b 3b")
    return r


def _sum(*, subtracts: bool) -> list[Instruction]:
    """A word of the table's entries for the left side, and the right one shifted, in lr."""
    code = [load_next("r7", "r0", 4), load_next("r8", "r1", 4)]
    if subtracts:
        # Minus a byte is all of its bits flipped, plus one, which the table has.
        code.append(Instruction("mvn r8, r8", Kind.LOGIC, second=("r8",), writes=("r8",)))
    for number in range(_WORD):
        value, other = (("r9", "r10"), ("r11", "r12"))[number % 2]
        code += [
            extend_byte("uxtb", other, "r7", 8 * number),
            load(value, "r2", f"{other}, lsl #2"),
            extend_byte("sxtb", other, "r8", 8 * number),
            add_shifted(value, value, other, f"lsl #{EXACT_SHIFT}"),
        ]
        if number == 0:
            code += scaled((value,), "r4", "r5", "r6", other, into="lr")
        else:
            code += scaled((value,), "r4", "r5", "r6", other)
            code.append(insert_byte("lr", value, number))
    return code


def _product() -> list[Instruction]:
    """A word of products in lr; r7 and r2 hold minus the zero points."""
    code = [
        load_next("r8", "r0", 4),
        load_next("r9", "r1", 4),
        extend16_add("r10", "r7", "r8"),
        extend16_add("r8", "r7", "r8", 8),
        extend16_add("r11", "r2", "r9"),
        extend16_add("r9", "r2", "r9", 8),
        # What is scaled is twice the product.
        simd("sadd16", "r10", "r10", "r10"),
        simd("sadd16", "r8", "r8", "r8"),
        multiply("smulbb", "lr", "r10", "r11"),
        multiply("smultt", "r10", "r10", "r11"),
        multiply("smulbb", "r11", "r8", "r9"),
        multiply("smultt", "r8", "r8", "r9"),
    ]
    for number, value in enumerate(("lr", "r11", "r10", "r8")):
        spare = ("r9", "r12")[number % 2]
        code += [
            add_shifted(spare, "r5", value, "asr #31"),
            multiply_add("smmlar", value, value, "r4", spare),
            shift_right(value, value, "r6"),
            saturate(value, value, 8),
        ]
        if number:
            code.append(insert_byte("lr", value, number))
    return code
