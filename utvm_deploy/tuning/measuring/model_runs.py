"""The gain of tuning for whole models: each runs compiled without the records, and with them.

A kernel alone is not as fast as between other layers, whose data and code are in the caches.
Candidates that are slower there are put back. The fastest measured run goes into the records, and a
compile with them takes it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.errors import SystemRefused, UtvmError
from utvm_deploy.base.results import one_line
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import AUTO, CompileOptions, Objective, scratch_place
from utvm_deploy.compiler.picks import Pick, Picks
from utvm_deploy.compiler.planning.decision import (
    Decision,
    candidates_of,
    decide,
    default_candidates,
    graph_digest,
    known_records,
)
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.compiler.stages.request import Watch
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Graph
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import check_fits
from utvm_deploy.records import Measurement, ModelRecord, Records, Setting, now
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.tuning.measuring.workload import Work

log = logging.getLogger(__name__)

#: How often a model is compiled again without what was slower in it.
ROUNDS = 4

Candidates = tuple[tuple[str, Candidate], ...]
Tell = Callable[[str], None]


class KeptRecords(Protocol):
    """Records that more can be added to, such as a ``RecordsFile``."""

    @property
    def records(self) -> Records:
        """All of them."""

    def append(self, record: ModelRecord) -> None:
        """Keep one more."""


@dataclass(frozen=True, repr=False)
class ModelRun:
    """A model before and after."""

    name: str
    graph: Graph = field(repr=False)
    decision: Decision = field(repr=False)  # how it is compiled now
    # Ticks without the records and with them; None if they were not measured.
    before: int | None = None
    after: int | None = None
    # Kernels that were faster alone and slower in the model: ticks of all their layers, before and
    # after.
    slower: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Why it was not measured.
    note: str = ""
    # Ticks by our kernels alone with the records, where there are backends.
    ours: int | None = None

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """Ticks without the records and with them."""
        if self.before is None or self.after is None:
            return f"{self.name}: {self.note or 'compiled as without the records'}"
        return f"{self.name}: {self.before:,} -> {self.after:,} ticks"

    @property
    def changed(self) -> list[str]:
        """Keys of the kernels that are compiled otherwise than without the records."""
        picks, without = self.decision.picks, self.decision.without
        return [key for key in picks if picks[key].candidate != without[key].candidate]


def first_candidates(
    works: Sequence[Work], board: Board, level: str, backends: Sequence[Backend]
) -> dict[str, Candidate]:
    """Kernel's key -> what a compile without the user's records takes."""
    known, place = known_records(board, None), scratch_place(board, AUTO)
    core = board.cpu.kernel_core
    found: dict[str, Candidate] = {}
    graphs = {id(work.graph): work.graph for work in works}
    for graph in graphs.values():
        for key, pick in decide(graph, board, core, known, Objective(level), place).picks.items():
            if pick.candidate is not None:
                found.setdefault(key, pick.candidate)
    theirs = [Candidate(one.family) for one in backends]
    return {
        work.kernel.key: next(
            (one for one in theirs if one in work.candidates),
            found.get(work.kernel.key, work.default),
        )
        for work in works
    }


def run_model(
    graph: Graph,
    device: Device,
    file: KeptRecords,
    setting: Setting,
    *,
    level: str,
    backends: Sequence[Backend] = (),
    tell: Tell = lambda text: None,
) -> ModelRun:
    """Run a model without the records and with them, and write down what it took."""
    return _ModelRunner(graph, device, file, setting, level, backends, tell).result()


@dataclass
class _ModelRunner:
    _graph: Graph
    _device: Device
    _file: KeptRecords
    _setting: Setting
    _level: str
    _backends: Sequence[Backend]
    _tell: Tell

    def __post_init__(self) -> None:
        board, graph, backends = self._device.board, self._graph, self._backends
        self._place = scratch_place(board, AUTO)
        core = board.cpu.kernel_core
        # What only a backend computes has one candidate.
        self._defaults = defaultdict(lambda: Candidate(GENERIC), default_candidates(graph, core))
        # Records of whole models hold neither the layers of backends nor code size.
        self._is_recorded = not backends and self._level != Objective.SIZE
        self._known = self._recorded() if self._is_recorded else {}

    def result(self) -> ModelRun:
        name = self._graph.name
        self._tell(f"compiling {name} without the records and with them")
        plain, without = self._compiled(None)
        # By records of single kernels: what whole models took before may be out of date.
        compiled, decision = self._compiled(Records(self._file.records))
        first, base = decision, candidates_of(without.picks, self._defaults)
        if compiled.sources == plain.sources:
            return ModelRun(name, self._graph, decision)
        slower: dict[str, tuple[int, int]] = {}
        try:
            before, layers_before = self._measured(plain, without, f"{name} without the records")
            tried = {base: before}
            decisions = {base: without}
            for _ in range(ROUNDS):
                candidates = candidates_of(decision.picks, self._defaults)
                # Candidates say nothing about a backend's layers.
                if self._is_recorded and candidates in tried:
                    break
                after, layers = self._measured(compiled, decision, f"{name} with the records")
                tried[candidates], decisions[candidates] = after, decision
                worse = _slower(decision, layers_before, layers)
                slower.update(worse)
                if not worse or not self._is_recorded:
                    break
                picks = {**decision.picks, **{key: without.picks[key] for key in worse}}
                compiled, decision = self._compiled(None, picks)
        except SystemRefused:
            raise  # it says nothing of the model
        except UtvmError as error:
            log.debug("%s does not run whole", name, exc_info=True)
            return ModelRun(name, self._graph, first, note=str(error))
        if not self._is_recorded:
            return ModelRun(name, self._graph, first, before, after)
        best = min(tried, key=lambda one: (tried[one], one != base))
        taken = replace(decisions[best], wanted=first.wanted, most_scratch=first.most_scratch)
        return ModelRun(name, self._graph, taken, before, tried[best], slower)

    def _compiled(
        self, records: Records | None, picks: Picks | None = None
    ) -> tuple[CompiledModel, Decision]:
        decisions: list[Decision] = []
        compiled = compile_model(
            self._graph,
            self._device.board,
            CompileOptions(
                backends=tuple(self._backends),
                records=records,
                objective=Objective(self._level),
                picks=picks,
                is_trial=True,
            ),
            Watch(decided=decisions.append),
        )
        return compiled, decisions[-1]

    def _measured(
        self, compiled: CompiledModel, decision: Decision, what: str
    ) -> tuple[int, dict[str, int]]:
        """Ticks of the whole model, and of each kernel's layers in it."""
        candidates = candidates_of(decision.picks, self._defaults)
        codes = tuple(sorted(decision.codes.items()))
        known = self._known.get(candidates) if self._is_recorded else None
        # A record may come from anybody, with any number of layers.
        if known is None or known.codes != codes or len(known.layers) != len(decision.layers):
            self._tell(f"running {what}")
            check_fits(compiled, self._device.board)
            found = profile(self._device.load(compiled), random_samples(self._graph, 1))
            layers = tuple(call.ticks for call in found.calls)
            known = ModelRecord(
                graph_digest(self._graph),
                self._graph.name,
                self._setting,
                self._device.board.name,
                self._place,
                candidates,
                codes,
                Measurement(found.ticks, float(found.ticks)),
                layers,
                now(),
            )
            self._known[candidates] = known
            if self._is_recorded:
                self._file.append(known)
        by_kernel: dict[str, int] = {}
        for key, of_layer in zip(decision.layers, known.layers, strict=True):
            by_kernel[key] = by_kernel.get(key, 0) + of_layer
        return known.measurement.ticks_min, by_kernel

    def _recorded(self) -> dict[Candidates, ModelRecord]:
        """What was measured of this model under the same circumstances."""
        graph, board = graph_digest(self._graph), self._device.board.name
        return {
            one.candidates: one
            for one in self._file.records.model_records
            if (one.graph, one.setting, one.board, one.scratch)
            == (graph, self._setting, board, self._place)
            and one.measurement.is_ok
        }


def _slower(
    decision: Decision, before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Kernels that the records changed, and that became slower in the model."""
    picks, without = decision.picks, decision.without
    # A backend's region may be one kernel in one of the runs alone.
    return {
        key: (before[key], after[key])
        for key in before
        if key in after
        and picks[key].candidate != without[key].candidate
        and after[key] > before[key]
    }


@dataclass(frozen=True)
class NotFollowed:
    """A candidate that was the fastest alone, and that a model is compiled without."""

    model: str
    kernel: str
    candidate: Candidate
    ticks: int
    taken: Candidate
    taken_ticks: int
    reason: str


def not_followed(
    results: Sequence[ModelRun],
    best: Mapping[str, tuple[Candidate, int]],
    ticks: Callable[[str, Candidate], int | None],
    scratch: Callable[[str, Candidate], int],
    core: str,
) -> list[NotFollowed]:
    """The fastest candidates that models are compiled without, and why.

    ``best`` has each kernel's fastest alone, ``ticks`` and ``scratch`` those of a candidate.
    """
    found = []
    for result in results:
        defaults = default_candidates(result.graph, core)
        for key, pick in result.decision.picks.items():
            if key not in best:
                continue
            taken = pick.candidate or defaults[key]
            if best[key][0] == taken:
                continue
            candidate, fastest = best[key]
            taken_ticks = ticks(key, taken)
            if taken_ticks is None or taken_ticks <= fastest:
                continue
            reason = _reason(
                result, key, candidate, taken_ticks / max(fastest, 1) - 1, scratch(key, candidate)
            )
            found.append(
                NotFollowed(result.name, key, candidate, fastest, taken, taken_ticks, reason)
            )
    return found


def _reason(result: ModelRun, key: str, candidate: Candidate, loss: float, scratch: int) -> str:
    wanted = result.decision.wanted.get(key, Pick()).candidate
    if key in result.slower:
        before, after = result.slower[key]
        return f"slower between the other layers: {before:,} -> {after:,}"
    if wanted == candidate and result.before is not None:
        if result.after == result.before:
            return "the whole model was no faster with it"
        return f"the memory has no room for its {scratch:,} bytes of scratch"
    if wanted == candidate:
        return f"the memory has no room for its {scratch:,} bytes of scratch"
    most = result.decision.most_scratch
    if most is not None and scratch > most:
        return (
            f"its {scratch:,} bytes of scratch would enlarge the stack, to save "
            f"{loss:.1%} of a layer; {most:,} are enough for all layers"
        )
    return f"another candidate is {loss:.1%} slower, but shares its code or takes less scratch"
