"""Fuses neighbouring operators that one call of a backend computes into one operator."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from utvm_deploy.backends.asking import built
from utvm_deploy.backends.chain_choice import ChainRecords
from utvm_deploy.backends.choice import why_not_on
from utvm_deploy.backends.interface import Backend, Match, Pattern
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall

_log = logging.getLogger(__name__)


def with_chains(
    graph: Graph, backend: Backend, core: str, known: ChainRecords | None = None
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
