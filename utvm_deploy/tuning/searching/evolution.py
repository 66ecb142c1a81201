"""meta_schedule's evolutionary search in a space of one kernel, such as the template-free one.

It proposes candidates and learns from their measurements. A Gaussian process over their decisions
says which proposals are worth a trial.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.portable.schedules.template_free import search_context, searchable
from utvm_deploy.records import Measurement
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.searching.search_spaces import FreeSpace, SearchSpace
from utvm_deploy.tuning.searching.speed_model import Key, scores

log = logging.getLogger(__name__)

#: Proposals that are made together.
PROPOSALS = 8
#: The number and size of the generations for each proposal: some tenths of a second.
POPULATION = 24
GENERATIONS = 2
_ENDLESS = 1 << 20


class Evolution:
    """Proposes candidates for one kernel, by what it has learned; equal seeds propose the same."""

    def __init__(self, kernel: OwnKernel, seed: int, space: SearchSpace | None = None) -> None:
        self._kernel = kernel
        self._space = space or FreeSpace(kernel)
        self._model = _Process(self._space, seed)
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=POPULATION,
            init_measured_ratio=0.5,
            init_min_unmeasured=PROPOSALS,
            genetic_num_iters=GENERATIONS,
            genetic_max_fail_count=4,
            eps_greedy=0.15,
        )
        func = searchable(kernel)
        self._context = search_context(func, self._space.generator(), strategy, seed)
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._context.mod)
        designs = self._context.generate_design_space()
        self._context.pre_tuning(
            max_trials=_ENDLESS,
            num_trials_per_iter=PROPOSALS,
            design_spaces=[one for one in designs if self._space.has(one.trace)],
            database=self._database,
            cost_model=self._model,
        )

    def propose(self) -> list[Candidate]:
        """Candidates that it has not proposed before; an empty list if it finds no more."""
        try:
            found = self._context.generate_measure_candidates() or []
        except RuntimeError as error:  # TVM raises it where a space is used up
            log.debug("%s has no more candidates: %s", self._kernel.name, error)
            return []
        proposed = [self._space.candidate_of(one.sch.trace) for one in found]
        return [one for one in proposed if one is not None]

    def learn(self, candidate: Candidate, measurement: Measurement) -> None:
        """Take a measurement of a candidate into account."""
        schedule = self._space.schedule_of(candidate) if measurement.is_ok else None
        key = None if schedule is None else self._space.key_of(schedule.trace)
        if schedule is None or key is None:
            return
        self._model.known[key] = max(measurement.ticks_min, 1)
        arguments = ms.arg_info.ArgInfo.from_entry_func(self._context.mod)
        self._database.commit_tuning_record(
            ms.database.TuningRecord(
                schedule.trace,
                self._workload,
                [float(measurement.ticks_min)],
                Target("c"),
                arguments,
            )
        )


@derived_object
class _Process(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Predicts ticks from decisions by a Gaussian process, which ends with the tuning."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        super().__init__()
        self.space = space
        self.random = np.random.default_rng(seed)
        self.known: dict[Key, float] = {}

    def load(self, path: str) -> None:
        """Do nothing: only records are kept."""

    def save(self, path: str) -> None:
        """Do nothing."""

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Do nothing: ``Evolution.learn`` gets the measurements."""

    def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
        """A score above 0 for each candidate; larger is faster."""
        asked = [self.space.key_of(one.sch.trace) or (0, "") for one in candidates]
        return scores(self.known, asked, self.random)
