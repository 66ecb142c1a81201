"""Blocks that the routines of the DSP family share: requantization and limits."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.dsp import CONDITION, select
from utvm_deploy.kernels.isa.mnemonics import Memory, Slot, at

CACHE_LINE_BYTES = 32


def helper(name: str) -> str:
    """The C of ``c/NAME.h`` in this package."""
    return family_text("dsp", name)


def function_text(name: str, a: Assembler, *, portable: str | None = None) -> str:
    """The static C function ``name``; its C is ``c/NAME.h`` (or ``portable``) in this package."""
    return a.c_function(name, helper(portable or name), CONDITION)


def scale(
    a: Assembler,
    sums: Sequence[str],
    multiplier: str,
    offset: str,
    shift: str,
    temporary: str,
    *,
    into: str | None = None,
    bits: int = 8,
    is_doubled: bool = False,
) -> None:
    """Requantize sums, in place or into one register: what ``utvm_scale`` computes.

    Outputs saturate to ``bits`` bits. ``is_doubled``: the registers have twice the sums.
    """
    for one in sums:
        a.add(temporary, offset, one, "asr #31")
        if not is_doubled:
            a.add(one, one, one)
        a.smmlar(one, one, multiplier, temporary)
        a.asr(one, one, shift)
        a.ssat(into or one, bits, one)


def scale_once(a: Assembler, sums: Sequence[str], multiplier: str, offset: str, shift: str) -> None:
    """Requantize sums to int8 in place with one rounding: what ``utvm_scale_once`` computes."""
    for one in sums:
        a.smmla(one, one, multiplier, offset)
        a.asr(one, one, shift)
        a.ssat(one, 8, one)


def scale_wide(
    a: Assembler,
    sums: Sequence[str],
    table: Slot | str,
    multipliers: Sequence[str],
    offsets: Sequence[tuple[str, str]],
    shift: str,
    *,
    step: int = 0,
) -> None:
    """Requantize sums to int8 in place: what ``utvm_scale_wide`` computes.

    The table is in slots, or at the address in a register. It has the words multiplier, low and
    high word of the offset, shift - 32. ``step`` words further on are those of the next sum; 0: all
    sums have the same. Sums take the multipliers and offsets, which are registers, in turn.
    """

    def word(number: int) -> Memory | Slot:
        return table.word(number) if isinstance(table, Slot) else at(table, 4 * number)

    for n, one in enumerate(sums):
        multiplier, offset = multipliers[n % len(multipliers)], offsets[n % len(offsets)]
        if step or n == 0:
            a.ldr(multiplier, word(step * n))
            a.ldr(shift, word(step * n + 3))
        a.ldr(offset[0], word(step * n + 1))
        a.ldr(offset[1], word(step * n + 2))
        a.smlal(*offset, one, multiplier)
        a.asr(offset[1], offset[1], shift)
        a.ssat(one, 8, offset[1])


def load_last_bytes(a: Assembler, target: str, pointer: str, count: str, temporary: str) -> None:
    """Load the one to three bytes at a pointer as the low bytes of a word of zeros."""
    a.ldrb(target, at(pointer))
    a.cmp(count, 2)
    for condition, byte in (("ge", 1), ("gt", 2)):
        with a.when(condition):
            a.ldrb(temporary, at(pointer, byte))
            a.orr(target, target, temporary, f"lsl #{8 * byte}")


def load_limits(a: Assembler, limits: str, low: Slot, clamps: Slot) -> None:
    """Put the two limits at an address into slots, as ``store_limits`` does."""
    a.ldrsb("r8", at(limits))
    a.ldrsb("r9", at(limits, 4))
    store_limits(a, low, clamps)


def store_limits(a: Assembler, low: Slot, clamps: Slot | None = None) -> None:
    """Put the limits in r8 and r9, four times each, into two slots from ``low`` on.

    ``clamps`` becomes 0 if they are int8's. Without it, only the flags say so: eq. Overwrites r8,
    r9, r10 and r12.
    """
    a.mov("r10", 0x01010101)
    a.cmp("r8", -128)
    with a.when("eq"):
        a.cmp("r9", 127)
    if clamps:
        with a.when("eq") as otherwise:
            a.mov("r12", 0)
            otherwise()
            a.mov("r12", 1)
    a.uxtb("r8", "r8")
    a.uxtb("r9", "r9")
    a.mul("r8", "r8", "r10")
    a.mul("r9", "r9", "r10")
    a.strd("r8", "r9", low)
    if clamps:
        a.str("r12", clamps)


def clamp(
    a: Assembler, values: Sequence[str], low: str, high: str, temporary: str, bits: int = 8
) -> None:
    """Limit each ``bits`` bits of the values in place; ``low`` and ``high`` repeat a limit."""
    for one in values:
        select(a, temporary, one, low, one, low, bits)
        select(a, temporary, high, one, one, high, bits)
