"""What the Thumb-2 routines have in common: when they can be used, and requantization."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.cores.timing import Kind
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    add_shifted,
    move,
    multiply_long,
    saturate,
    shift_right,
)

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__thumb2__) && defined(__GNUC__)"


def scaled(
    value: str, multiplier: str, offset: str, shift: str, low: str, high: str
) -> list[Instruction]:
    """Requantization to int8 in place: what ``utvm_scale`` computes, from SMULL's two words."""
    product = Instruction(
        f"smull {low}, {high}, {low}, {multiplier}",
        Kind.MULTIPLY_LONG,
        first=(low,),
        second=(multiplier,),
        writes=(low, high),
    )
    return [
        add(low, value, value),
        product,
        add_shifted(high, high, low, "lsr #31"),
        add_shifted(high, high, value, "asr #31"),
        add(high, high, offset),
        shift_right(value, high, shift),
        saturate(value, value, 8),
    ]


def scaled_wide(
    value: str, multiplier: str, offset: str, offset_high: str, shift: str, low: str, high: str
) -> list[Instruction]:
    """One rounding in 64 bits, in place: what ``utvm_scale_wide`` computes."""
    return [
        move(low, offset),
        move(high, offset_high),
        multiply_long(low, high, value, multiplier),
        shift_right(value, high, shift),
        saturate(value, value, 8),
    ]


def limits_stored(low: int, clamps: int) -> list[str]:
    """Both limits, which are at r3, to the slots at ``low``; to ``clamps`` 0 if they are int8's."""
    return [
        "ldrd r0, r1, [r3]",
        f"strd r0, r1, [sp, #{low}]",
        "adds r0, #128",
        "subs r1, #127",
        "orrs r0, r1",
        f"str r0, [sp, #{clamps}]",
    ]


def clamped(registers: Sequence[str], low: int, clamps: int, label: str) -> list[str]:
    """The registers limited, as ``limits_stored`` left the limits; overwrites r0 and r1."""
    code = [f"ldr r0, [sp, #{clamps}]", f"cbz r0, {label}f", f"ldrd r0, r1, [sp, #{low}]"]
    for register in registers:
        code += [f"cmp {register}, r0", "it lt", f"movlt {register}, r0"]
        code += [f"cmp {register}, r1", "it gt", f"movgt {register}, r1"]
    return [*code, f"{label}:"]
