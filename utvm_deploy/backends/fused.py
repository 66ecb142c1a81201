"""Neighbouring operators that one call of a backend computes become one operator.

They stay apart if tuning found that faster. Records know fused operators by the call's kernel. One
record has what the call took in its model. Another one, with the choice ``chain=apart``, has what
the operators took there one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from utvm_deploy.backends.asking import built
from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.interface import Backend, Match, Pattern, why_not_on
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.records import Record, Records
from utvm_deploy.records.candidate import Candidate

_log = logging.getLogger(__name__)


def fused_and_apart(backend: Backend) -> tuple[Candidate, Candidate]:
    """The call of the fused operators, and the operators apart."""
    return Candidate(backend.family), Candidate.of(backend.family, chain="apart")


@dataclass(frozen=True, eq=False)
class FusionRecords:
    """What records say of a backend's fused operators on a core, at one level of the C compiler."""

    backend: Backend
    core: str
    records: Records | None = None
    optimization_flag: str = ""

    def why_apart(self, graph: Graph, fused: Operator) -> str:
        """Why fused operators stay apart, in a phrase; empty if they do not."""
        whole, apart = (self._newest(graph, fused, one) for one in fused_and_apart(self.backend))
        if whole is None:
            return ""
        if not whole.measurement.is_ok:
            return f"the fused call met {whole.measurement.error!r} when it was tuned"
        if apart is None or apart.setting != whole.setting or not apart.measurement.is_ok:
            return ""
        ticks, others, unit = (
            *(one.measurement.ticks_min for one in (whole, apart)),
            whole.setting.unit,
        )
        if others > ticks:
            return ""
        return f"the fused call took {ticks:,} {unit}, the separate operators {others:,}"

    def _newest(self, graph: Graph, fused: Operator, candidate: Candidate) -> Record | None:
        key = identity_of(graph, fused).key
        found: Iterable[Record] = (
            record
            for record in self.records or ()
            if record.kernel.key == key
            and record.candidate == candidate
            and record.code == code_of_backend(self.backend)
            and record.setting.core == self.core
            and record.setting.optimization_flag == self.optimization_flag
            and self.records is not None
            and self.records.is_of_today(record.setting)
        )
        return max(found, key=lambda record: record.time, default=None)


def with_fused(
    graph: Graph, backend: Backend, core: str, known: FusionRecords | None = None
) -> Graph:
    """The graph, with the operators fused for which the backend has a pattern.

    Longer patterns come first. Operators stay apart if the backend refuses them, or if they are
    faster apart by what is ``known``.
    """
    if why_not_on(backend, core):
        return graph
    patterns = [one for one in backend.patterns if len(one.operators) > 1]
    for pattern in sorted(patterns, key=lambda one: -len(one.operators)):
        for operators in list(_matches(graph, pattern)):
            match = Match(graph, operators, core)
            call = built(backend, pattern, match)
            if isinstance(call, str):
                _log.info("%s is not fused: %s", match.kind, call)
            else:
                fused = _fused(graph, operators, call)
                (one_call,) = [
                    one for one in fused.operators if one.outputs == operators[-1].outputs
                ]
                if known is not None and (why := known.why_apart(fused, one_call)):
                    _log.info("%s is not fused: %s", match.kind, why)
                else:
                    graph = fused
    return graph


def is_fused(operator: Operator) -> bool:
    """Whether the operator was made of several ones."""
    return isinstance(operator.attributes, External) and "+" in operator.kind


def _matches(graph: Graph, pattern: Pattern) -> Iterator[tuple[Operator, ...]]:
    """The neighbours of these kinds; no operator is in two matches."""
    readers: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for number in set(operator.inputs):
            if number is not None:
                readers.setdefault(number, []).append(operator)
    kept = {*graph.outputs, *(number for pair in graph.states for number in pair)}
    taken: set[int] = set()
    for start in graph.operators:
        match = [start]
        for kind in pattern.operators[1:]:
            (*others, number) = match[-1].outputs
            found = readers.get(number, [])
            if others or number in kept or len(found) != 1 or found[0].kind != kind:
                break
            match.append(found[0])
        kinds = tuple(one.kind for one in match)
        if kinds != pattern.operators or taken & {id(one) for one in match}:
            continue
        taken |= {id(one) for one in match}
        yield tuple(match)


def _fused(graph: Graph, match: tuple[Operator, ...], call: KernelCall) -> Graph:
    """One operator at the place of the last one, when all of its inputs are made."""
    made = {number for one in match for number in one.outputs}
    inputs = dict.fromkeys(n for one in match for n in one.inputs if n not in made)
    fused = Operator(
        "+".join(one.kind for one in match),
        tuple(inputs),
        match[-1].outputs,
        External(lower=lambda graph, operator, core: call),
        tuple(source for one in match for source in one.sources),
    )
    inner = {id(one) for one in match[:-1]}
    operators = (
        fused if one is match[-1] else one for one in graph.operators if id(one) not in inner
    )
    return graph.replaced(operators=tuple(operators))
