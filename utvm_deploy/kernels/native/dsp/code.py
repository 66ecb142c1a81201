"""What the DSP routines have in common: when they can be used, and their C."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.routine import Routine, naked_function


def helper(name: str) -> str:
    """The C of ``c/NAME.h`` in this package."""
    return family_text("dsp", name)


def c_text(
    name: str, parameters: Sequence[str], routine: Routine, *, portable: str | None = None
) -> str:
    """The static function ``name``; its C is ``c/NAME.h`` (or ``portable``) in this package."""
    return naked_function(name, parameters, routine.lines, helper(portable or name), CONDITION)
