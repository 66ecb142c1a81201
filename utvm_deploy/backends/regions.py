"""Regions: operators of a model that one call of a backend computes become one operator.

Patterns and ``Backend.covers`` annotate operators. Neighbours that ``Backend.build`` computes are
merged as long as no other operator has to run between them. Then ``partitioned`` puts one operator
in the place of each region. Its attributes have the operators as a graph, and it may have several
outputs, which are tensors of the model's file.

Regions of several backends may overlap. That with the larger gain is taken, by records or by the
backend's estimate. Among equal ones, the first backend's is. The rest is annotated again.

Records know a region by the kernel of its call. One record has what the call took in its model.
Another one, with the choice ``chain=apart``, has what the operators took there one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from utvm_deploy.backends.asking import MATCH_SECONDS, asked, built, is_covered
from utvm_deploy.backends.choice import code_of_backend, estimated
from utvm_deploy.backends.edges import Edges
from utvm_deploy.backends.interface import Backend, Build, Match, Pattern, why_not_on
from utvm_deploy.backends.patterns import Op, parts_of
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.records import Record, Records
from utvm_deploy.records.candidate import Candidate

_log = logging.getLogger(__name__)

#: Gives the cycles that our kernels take for operators of a graph, about.
Cycles = Callable[[Graph, Sequence[Operator]], float]


def whole_and_apart(backend: Backend) -> tuple[Candidate, Candidate]:
    """The call of a region, and its operators apart."""
    return Candidate(backend.family), Candidate.of(backend.family, chain="apart")


def is_region(operator: Operator) -> bool:
    """Whether the operator stands for a region."""
    return isinstance(operator.attributes, External) and operator.attributes.subgraph is not None


@dataclass(frozen=True, eq=False)
class Region:
    """Operators that one call of a backend would compute."""

    backend: Backend
    match: Match
    positions: frozenset[int]
    operator: Operator
    gain: float = 0.0


@dataclass(frozen=True, eq=False)
class _Annotated:
    """Operators that a backend wants to compute by one call."""

    positions: tuple[int, ...]
    build: Build
    match: Match


@dataclass(frozen=True, eq=False)
class RegionRecords:
    """What records say of regions on a core, at one level of the C compiler."""

    core: str
    records: Records | None = None
    optimization_flag: str = ""

    def gain(self, backend: Backend, graph: Graph, region: Operator) -> float | str | None:
        """What a region's call saves, or why its operators stay apart; None if nothing is known."""
        whole, apart = (
            self._newest(backend, graph, region, one) for one in whole_and_apart(backend)
        )
        if whole is None:
            return None
        if not whole.measurement.is_ok:
            return f"the region's call met {whole.measurement.error!r} when it was tuned"
        if apart is None or apart.setting != whole.setting or not apart.measurement.is_ok:
            return None
        ticks, others, unit = (
            *(one.measurement.ticks_min for one in (whole, apart)),
            whole.setting.unit,
        )
        if others > ticks:
            return float(others - ticks)
        return f"the region's call took {ticks:,} {unit}, the separate operators {others:,}"

    def _newest(
        self, backend: Backend, graph: Graph, region: Operator, candidate: Candidate
    ) -> Record | None:
        key = identity_of(graph, region).key
        found: Iterable[Record] = (
            record
            for record in self.records or ()
            if record.kernel.key == key
            and record.candidate == candidate
            and record.code == code_of_backend(backend)
            and record.setting.core == self.core
            and record.setting.optimization_flag == self.optimization_flag
            and self.records is not None
            and self.records.is_of_today(record.setting)
        )
        # Of those of one second, the last one.
        return max(reversed([*found]), key=lambda record: record.time, default=None)


@dataclass(eq=False)
class _Partition:
    """Finds the regions of backends in a graph, again after some were taken."""

    backends: Sequence[Backend]
    core: str
    known: RegionRecords | None
    cycles: Cycles | None
    # Of each backend and function: what a region makes -> its call, or why there is none.
    calls: dict[tuple[object, ...], KernelCall | str] = field(default_factory=dict)

    def taken(self, graph: Graph) -> list[Region]:
        """Disjoint regions of all backends, for which there is an order; the best ones first."""
        found = [one for backend in self.backends for one in self._regions(graph, backend)]
        found = sorted(found, key=lambda one: -one.gain)
        edges = Edges(graph)
        kept: list[Region] = []
        positions = {position for one in found for position in one.positions}
        are_apart = len(positions) == sum(len(one.positions) for one in found)
        if are_apart and edges.replaced(_groups(found)) is not None:
            return found
        positions = set()
        for one in found:
            is_apart = positions.isdisjoint(one.positions)
            if is_apart and edges.replaced(_groups([*kept, one])) is not None:
                kept.append(one)
                positions |= one.positions
        return kept

    def _regions(self, graph: Graph, backend: Backend) -> Iterator[Region]:
        """The regions of a backend, each operator in one of them."""
        free = {i for i, one in enumerate(graph.operators) if not is_region(one)}
        for pattern in _by_length(backend):
            for one in self._found(graph, backend, pattern, free) if pattern.build else ():
                if region := self._region(graph, backend, one):
                    free -= region.positions
                    yield region
        if backend.build is None:
            return
        groups = self._annotated(graph, backend, free)
        for group in Edges(graph).merged(groups):
            # If it is refused, what patterns found stays together.
            for positions in (group, *(one for one in groups if one < group)):
                order = tuple(sorted(positions))
                match = Match(graph, tuple(graph.operators[i] for i in order), self.core)
                region = self._region(graph, backend, _Annotated(order, backend.build, match))
                if region is not None:
                    yield region
                    if positions is group:
                        break

    def _found(
        self, graph: Graph, backend: Backend, pattern: Pattern, free: Collection[int]
    ) -> Iterator[_Annotated]:
        """Where a pattern is, with its call's function or that of the backend."""
        if pattern.custom or not (build := pattern.build or backend.build):
            return
        what = f"the pattern {pattern.label}"
        found = asked(backend, what, lambda: pattern.matches(graph, free), MATCH_SECONDS, graph)
        for one in found:
            operators = tuple(graph.operators[i] for i in one.positions)
            places = {name: graph.operators[i] for name, i in one.operators.items()}
            match = Match(graph, operators, self.core, {**one.tensors, **places})
            yield _Annotated(one.positions, build, match)

    def _annotated(self, graph: Graph, backend: Backend, free: set[int]) -> list[set[int]]:
        """Groups of operators that ``Backend.build`` computes."""
        left = set(free)
        groups: list[set[int]] = []
        for pattern in _by_length(backend):
            if pattern.build is None:
                some = [{*one.positions} for one in self._found(graph, backend, pattern, left)]
                left = left.difference(*some)
                groups += some
        if backend.covers is not None:
            operations = {i: Operation(graph, graph.operators[i]) for i in sorted(left)}
            groups += asked(
                backend,
                "covers",
                lambda: [{i} for i, one in operations.items() if is_covered(backend, one)],
                MATCH_SECONDS,
                graph,
            )
        return groups

    def _region(self, graph: Graph, backend: Backend, wanted: _Annotated) -> Region | None:
        """The region, unless the backend refuses it or is known to be slower."""
        match = wanted.match
        if len(match.operators) == 1:
            return None  # it stays an operator, whose kernel is chosen like others
        made = tuple(n for one in match.operators for n in one.outputs)
        key = backend.family, wanted.build, made, *sorted(match.named)
        if key not in self.calls:
            self.calls[key] = built(backend, wanted.build, match)
        call = self.calls[key]
        gain: float | str | None = None
        if isinstance(call, str):
            gain = call
        else:
            operator = _operator(backend, match, call)
            gain = None if self.known is None else self.known.gain(backend, graph, operator)
            if gain is None:
                gain = self._estimated(backend, match)
        if isinstance(gain, str):
            _log.info("%s does not become a region of %s: %s", match.kind, backend.name, gain)
            return None
        return Region(backend, match, frozenset(wanted.positions), operator, gain)

    def _estimated(self, backend: Backend, match: Match) -> float | str:
        """The gain by estimates; 0 without them."""
        if self.cycles is None or backend.estimate is None:
            return 0.0
        try:
            ours = self.cycles(match.graph, match.operators)
        except UnsupportedOperator:
            return 0.0  # only the backend computes it
        return estimated(backend, match, ours)


def partitioned(
    graph: Graph,
    backends: Sequence[Backend],
    core: str,
    known: RegionRecords | None = None,
    cycles: Cycles | None = None,
) -> Graph:
    """The graph with one operator for each region of the backends.

    Longer patterns come first. Operators stay apart if the backend refuses them, or if they are
    faster apart by what is ``known``, or by the backend's estimate and ours (``cycles``).
    """
    fitting = [one for one in backends if not (one.is_apart or why_not_on(one, core))]
    partition = _Partition(fitting, core, known, cycles)
    while regions := partition.taken(graph):
        made = Edges(graph).replaced(_groups(regions))
        assert made is not None
        graph = made
    return graph


def _groups(regions: Sequence[Region]) -> list[tuple[frozenset[int], Operator]]:
    return [(one.positions, one.operator) for one in regions]


def _by_length(backend: Backend) -> list[Pattern]:
    """The patterns, those with the most operators first."""

    def length(pattern: Pattern) -> int:
        parts = (one for root in pattern.roots for one in parts_of(root))
        return len({one for one in parts if isinstance(one, Op)})

    return sorted(backend.patterns, key=lambda one: -length(one))


def _operator(backend: Backend, match: Match, call: KernelCall) -> Operator:
    """The operator of a region, whose kernel is the call."""
    made = {number for one in match.operators for number in one.outputs}
    read = (number for one in match.operators for number in one.inputs if number not in made)
    return Operator(
        match.kind,
        tuple(dict.fromkeys(read)),
        match.outputs,
        External(
            lower=lambda graph, operator, core: call,
            subgraph=match.subgraph,
            family=backend.family,
        ),
        tuple(source for one in match.operators for source in one.sources),
    )
