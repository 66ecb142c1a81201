"""What the Thumb-2 routines have in common: when they can be used, and requantization."""

from __future__ import annotations

from utvm_deploy.cores.timing import Kind
from utvm_deploy.kernels.micro.assembly import (
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


def clamped(register: str, low: str, high: str) -> list[str]:
    """The register limited to what two others hold."""
    return [
        f"cmp {register}, {low}",
        "it lt",
        f"movlt {register}, {low}",
        f"cmp {register}, {high}",
        "it gt",
        f"movgt {register}, {high}",
    ]
