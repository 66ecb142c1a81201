"""The routines of ``elementwise.py``: four elements of each side at a time.

``numbers`` are the output's multiplier, offset and shift, and its limits. Routines of int8 have
more. First, minus the zero point of each side, twice in the halves of a word. Then a number for
the operator, and a table if the operator has one.
"""

from __future__ import annotations

from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import (
    clamp,
    function_text,
    helper,
    scale,
    store_limits,
)
from utvm_deploy.kernels.native.elementwise import loop_parameters

ADD, SUBTRACT, MULTIPLY, PRELU, EXTREMUM = "add", "subtract", "multiply", "prelu", "extremum"
INT16_MULTIPLY = "utvm_wide_multiply"
#: Numbers of the output, and numbers of int8 before the table.
SCALING_WORDS, NUMBERS = 5, 8
#: ADD and SUB shift the right side left by this. The table has the summands of the left side.
EXACT_SHIFT = 19


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    end: Slot  # of the left side
    low: Slot
    high: Slot


@code_cache
def loop_texts(core: str, operation: str) -> tuple[str, ...]:
    """The C texts of ``utvm_OPERATION_all`` of int8 and what it calls, ordered for a core."""
    texts = [shared_text("utvm_word"), shared_text("utvm_scale")]
    # PRELU multiplies negative values.
    assembled = {EXTREMUM: None, PRELU: MULTIPLY}.get(operation, operation)
    if assembled:
        texts.append(function_text(f"utvm_{assembled}_words", _routine(core, assembled)))
    if operation in (PRELU, EXTREMUM):
        texts.append(helper(f"utvm_{operation}_words"))
    return (*texts, replaced(helper("utvm_all"), ("OPERATION", operation, 3)))


def _routine(core: str, operation: str) -> Assembler:
    """``count`` elements, a multiple of 4."""
    a = Assembler(core, loop_parameters("int8"))
    a.enter(frame=_Slots)
    for number, register in enumerate(("r4", "r5", "r6")):
        a.ldr(register, at("r2", 4 * number))
    a.ldrsb("r8", at("r2", 12))
    a.ldrsb("r9", at("r2", 16))
    a.ldr("r7", a.stack_argument("count"))
    a.add("r7", "r7", "r0")
    a.str("r7", _Slots.end)
    store_limits(a, _Slots.low)
    if operation == MULTIPLY:
        a.ldr("r7", at("r2", 20))
        a.ldr("r2", at("r2", 24))
    else:
        a.add("r2", "r2", 4 * NUMBERS)
    limited = Label()
    a.b(limited, "ne")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        _compute_word(a, operation, is_limited=False)
    done = a.here()
    a.leave()
    a.place(limited, aligned=True)
    with a.scheduled(is_loop=True):
        _compute_word(a, operation, is_limited=True)
    a.b(limited, "ne")
    a.b(done)
    return a


def _compute_word(a: Assembler, operation: str, *, is_limited: bool) -> None:
    """Compute four outputs, store them at r3, and compare: eq if they were the last ones."""
    end = "lr" if operation == MULTIPLY else "r7"
    if operation == MULTIPLY:
        _multiply(a)
    else:
        _add(a, subtracts=operation == SUBTRACT)
    if is_limited:
        a.load(r9=_Slots.low, r10=_Slots.high)
        clamp(a, ("lr",), "r9", "r10", "r11")
    a.str("lr", post("r3", 4))
    a.ldr(end, _Slots.end)
    a.cmp("r0", end)


def _add(a: Assembler, *, subtracts: bool) -> None:
    """A word of sums in lr: the table's summand for the left side, the right side shifted."""
    a.ldr("r7", post("r0", 4))
    a.ldr("r8", post("r1", 4))
    if subtracts:
        # Minus a byte is all of its bits flipped, plus 1. The 1 is in the table.
        a.mvn("r8", "r8")
    for number in range(4):
        rotation = (f"ror #{8 * number}",) if number else ()
        value, other = (("r9", "r10"), ("r11", "r12"))[number % 2]
        a.uxtb(other, "r7", *rotation)
        a.ldr(value, at("r2", f"{other}, lsl #2"))
        a.sxtb(other, "r8", *rotation)
        a.add(value, value, other, f"lsl #{EXACT_SHIFT}")
        if number == 0:
            scale(a, (value,), "r4", "r5", "r6", other, into="lr")
        else:
            scale(a, (value,), "r4", "r5", "r6", other)
            a.bfi("lr", value, 8 * number, 8)


def _multiply(a: Assembler) -> None:
    """A word of products in lr; r7 and r2 hold minus the zero points, in both halves."""
    a.ldr("r8", post("r0", 4))
    a.ldr("r9", post("r1", 4))
    for zero, bytes_02, bytes_13 in (("r7", "r10", "r8"), ("r2", "r11", "r9")):
        a.sxtab16(bytes_02, zero, bytes_13)
        a.sxtab16(bytes_13, zero, bytes_13, "ror #8")
    # What is scaled is twice the product.
    a.sadd16("r10", "r10", "r10")
    a.sadd16("r8", "r8", "r8")
    a.smulbb("lr", "r10", "r11")
    a.smultt("r10", "r10", "r11")
    a.smulbb("r11", "r8", "r9")
    a.smultt("r8", "r8", "r9")
    for number, value in enumerate(("lr", "r11", "r10", "r8")):
        spare = ("r9", "r12")[number % 2]
        scale(a, (value,), "r4", "r5", "r6", spare, is_doubled=True)
        if number:
            a.bfi("lr", value, 8 * number, 8)


@code_cache
def int16_multiply_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_wide_multiply_all`` and what it calls, ordered for a core.

    It doubles products, so that the upper words of products with the multiplier are what the
    reference rounds to.
    """
    a = Assembler(core, loop_parameters("int16"))
    a.enter()
    a.ldm("r2", ("r4", "r5", "r6", "r8", "r9"))
    a.ldr("r2", a.stack_argument("count"))
    a.pkhbt("r8", "r8", "r8", "lsl #16")
    a.pkhbt("r9", "r9", "r9", "lsl #16")
    a.add("r7", "r0", "r2", "lsl #1")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        a.ldr("r10", post("r0", 4))
        a.ldr("r11", post("r1", 4))
        _multiply_int16(a, "r12", "r10", "r11", "r2")
        a.ldr("lr", post("r0", 4))
        a.ldr("r11", post("r1", 4))
        a.str("r12", post("r3", 4))
        _multiply_int16(a, "r10", "lr", "r11", "r2")
        a.str("r10", post("r3", 4))
        a.cmp("r0", "r7")
    a.leave()
    routine = a.c_function(INT16_MULTIPLY, shared_text(INT16_MULTIPLY), CONDITION)
    return routine, shared_text(f"{INT16_MULTIPLY}_all")


def _multiply_int16(a: Assembler, result: str, left: str, right: str, spare: str) -> None:
    """Two outputs in ``result`` from two words; overwrites the others."""
    a.smulbb(result, left, right)
    a.smultt(left, left, right)
    for value, temporary in ((result, spare), (left, right)):
        a.qadd(value, value, value)
        scale(a, (value,), "r4", "r5", "r6", temporary, bits=16, is_doubled=True)
    a.pkhbt(result, result, left, "lsl #16")
    clamp(a, (result,), "r8", "r9", spare, bits=16)
