"""Portable kernels of int8 whose products the tensor intrinsics compute.

intrinsics=F    the family of the intrinsics
pixels=N        how many pixels of an image row (or rows of a matrix) a call takes at most

The intrinsics have C for every core, so the bytes are equal everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from utvm_deploy.base.errors import CompileError, last_words
from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.contract.lazy_tvm import s_tir
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.intrinsics.facts import PREFIX, Dot
from utvm_deploy.kernels.intrinsics.schedules import PIXELS, block_of, tensorize
from utvm_deploy.kernels.portable.schedules.template_free import loops_of
from utvm_deploy.records.candidate import GENERIC, Candidate

INTRINSICS = "intrinsics"


@dataclass(frozen=True)
class TensorChoices(Choices):
    """A candidate with tensor intrinsics."""

    intrinsics: str
    pixels: int


@dataclass(frozen=True)
class Tensorized:
    """A kernel that is scheduled with tensor intrinsics."""

    kernel: OwnKernel
    family: str
    pixels: int

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_{self.family}_p{self.pixels}"

    def prim_func(self) -> Any:
        return loops_of(self.kernel)

    def schedule(self, sch: Any, core: str) -> str:
        return f"generic C, products by the tensor intrinsic {self.tensorize(sch)}"

    def tensorize(self, sch: Any) -> str:
        """Apply the schedule; returns the name of the intrinsic."""
        used = tensorize(sch, block_of(sch), self.family, pixels=self.pixels, for_search=True)
        window = getattr(self.kernel, "window", None)
        if isinstance(used, Dot) and isinstance(window, Window) and window.is_padded:
            # Windows are copied row by row, so scratch need not hold the whole padded image.
            window.schedule_pad(sch, sch.get_loops(sch.get_sblock("requantize"))[1])
        return used.name


def tensorized(kernel: OwnKernel, candidate: Candidate) -> Tensorized | str:
    """The kernel with the candidate's intrinsics; a text says why there is none."""
    choices = TensorChoices.read(candidate)
    if isinstance(choices, str):
        return choices
    if loops_of(kernel) is None:
        return f"{kernel.name} is a C routine, which TVM does not schedule"
    if choices.pixels not in PIXELS:
        known = ", ".join(map(str, PIXELS))
        return f"the intrinsics do not take {choices.pixels} pixels, but {known}"
    found = Tensorized(kernel, choices.intrinsics, choices.pixels)
    used = _used(found)
    return found if used.startswith(PREFIX) else used


def tensorized_candidates(kernel: OwnKernel, family: str) -> tuple[Candidate, ...]:
    """The candidates of a kernel; none if the intrinsics do not fit it."""
    if loops_of(kernel) is None:
        return ()
    kept: dict[str, Candidate] = {}
    for pixels in PIXELS:
        used = _used(Tensorized(kernel, family, pixels))
        if used.startswith(PREFIX):
            kept.setdefault(used, TensorChoices(family, pixels).candidate(GENERIC))
    return tuple(kept.values())


@lru_cache(maxsize=256)
def _used(kernel: Tensorized) -> str:
    """The name of the intrinsic that the schedule uses, or why there is no schedule."""
    try:
        return kernel.tensorize(s_tir.Schedule(kernel.prim_func()))
    except CompileError as error:
        return str(error)
    except (RuntimeError, TypeError, ValueError) as error:  # from TVM, for what does not fit
        return f"TVM refuses the tensor intrinsics: {last_words(error)}"
