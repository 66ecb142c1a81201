"""The DSP extension: where it can be used, and a choice between lanes by its flags."""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.instructions import Instruction, simd
from utvm_deploy.kernels.isa.mnemonics import instruction

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)"


def select(
    a: Assembler, temporary: str, left: str, right: str, value: str, bound: str, bits: int = 8
) -> None:
    """value = left >= right (in parts of ``bits`` bits, signed) ? value : bound."""
    a.emit(instruction(f"ssub{bits}", temporary, left, right))
    a.sel(value, value, bound)


def selected(
    temporary: str, left: str, right: str, value: str, bound: str, bits: int = 8
) -> list[Instruction]:
    """value = left >= right (in parts of ``bits`` bits, signed) ? value : bound."""
    flags = ("ge",)
    difference = simd(f"ssub{bits}", temporary, left, right)
    chosen = simd("sel", value, value, bound)
    return [
        Instruction(
            difference.text,
            difference.kind,
            difference.first,
            difference.second,
            writes=(*difference.writes, *flags),
        ),
        Instruction(
            chosen.text, chosen.kind, chosen.first, (*chosen.second, *flags), writes=chosen.writes
        ),
    ]
