"""The DSP extension: the condition for its assembly, and a choice between lanes by its flags."""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import instruction

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)"


def select(
    a: Assembler, temporary: str, left: str, right: str, value: str, bound: str, bits: int = 8
) -> None:
    """value = left >= right ? value : bound, in signed lanes of ``bits`` bits."""
    a.emit(instruction(f"ssub{bits}", temporary, left, right))
    a.sel(value, value, bound)
