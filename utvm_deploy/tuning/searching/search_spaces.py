"""The spaces in which ``Evolution`` searches schedules of one kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from tvm import s_tir

from utvm_deploy.intrinsics.space import intrinsics_in, space_of_sketches
from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.portable.schedules import template_free
from utvm_deploy.kernels.portable.schedules.given_trace import TRACE, candidate_with
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.searching.speed_model import Key


class SearchSpace(Protocol):
    """Schedules, and how candidates name them."""

    def generator(self) -> Any:
        """TVM's space generator."""

    def has(self, trace: Any) -> bool:
        """Whether the schedules of a sketch are worth a trial."""

    def candidate_of(self, trace: Any) -> Candidate | None:
        """The candidate that makes the schedule of ``trace``."""

    def schedule_of(self, candidate: Candidate) -> Any:
        """The schedule of a candidate; None if it is not of this space."""

    def key_of(self, trace: Any) -> Key | None:
        """The number of its sketch, and its decisions."""


@dataclass(frozen=True)
class FreeSpace:
    """The template-free space."""

    kernel: OwnKernel

    def generator(self) -> Any:
        return template_free.space_of_c()

    def has(self, trace: Any) -> bool:
        return self.candidate_of(trace) is not None

    def candidate_of(self, trace: Any) -> Candidate | None:
        return template_free.candidate_of(self.kernel, trace)

    def schedule_of(self, candidate: Candidate) -> Any:
        number, decisions = (
            candidate.choice(template_free.SKETCH),
            candidate.choice(template_free.DECISIONS),
        )
        if not isinstance(number, int) or not isinstance(decisions, str):
            return None
        return template_free.design(template_free.Traced(self.kernel, number, decisions))

    def key_of(self, trace: Any) -> Key | None:
        candidate = self.candidate_of(trace)
        if candidate is None:
            return None
        return candidate.number(template_free.SKETCH) or 0, str(
            candidate.choice(template_free.DECISIONS)
        )


@dataclass(frozen=True)
class TensorSpace:
    """Sketches of TVM's rule for tensor intrinsics; candidates have their traces."""

    kernel: OwnKernel
    family: str
    # The sketches in the order in which they came.
    _sketches: dict[str, int] = field(default_factory=dict, compare=False)

    def generator(self) -> Any:
        return space_of_sketches(template_free.searchable(self.kernel), self.family)

    def has(self, trace: Any) -> bool:
        # Otherwise, accumulators of the whole output are scratch: too much.
        return template_free.is_fused(trace)

    def candidate_of(self, trace: Any) -> Candidate | None:
        return candidate_with(trace)

    def schedule_of(self, candidate: Candidate) -> Any:
        trace = candidate.choice(TRACE)
        if trace is None:
            return None
        sch = s_tir.Schedule(template_free.searchable(self.kernel))
        try:
            s_tir.schedule.Trace.apply_json_to_schedule(json.loads(str(trace)), sch)
        except (RuntimeError, TypeError, ValueError):  # a trace of another kernel
            return None
        return sch if intrinsics_in(sch) else None

    def key_of(self, trace: Any) -> Key | None:
        instructions, decisions = template_free.described(trace)
        return self._sketches.setdefault(instructions, len(self._sketches)), decisions
