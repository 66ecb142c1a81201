"""Merges neighbouring operators that one call of a backend computes into one operator."""

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
    """The graph with one operator for each chain that a pattern of the backend has.

    Longer patterns come first. A chain that the backend refuses stays as it is, and so does one
    whose operators are faster apart, by what is ``known``.
    """
    if why_not_on(backend, core):
        return graph
    patterns = [one for one in backend.patterns if len(one.operators) > 1]
    for pattern in sorted(patterns, key=lambda one: -len(one.operators)):
        for operators in list(_chains(graph, pattern)):
            match = Match(graph, operators, core)
            call = built(backend, pattern, match)
            if isinstance(call, str):
                _log.info("%s is not merged: %s", match.kind, call)
            else:
                merged = _merged(graph, operators, call)
                (chain,) = [one for one in merged.operators if one.outputs == operators[-1].outputs]
                if known is not None and (why := known.why_apart(merged, chain)):
                    _log.info("%s is not merged: %s", match.kind, why)
                else:
                    graph = merged
    return graph


def is_chain(operator: Operator) -> bool:
    """Whether the operator is a merged chain."""
    return isinstance(operator.attributes, External) and "+" in operator.kind


def _chains(graph: Graph, pattern: Pattern) -> Iterator[tuple[Operator, ...]]:
    """The chains of these kinds; no operator is in two of them."""
    readers: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for number in set(operator.inputs):
            if number is not None:
                readers.setdefault(number, []).append(operator)
    kept = {*graph.outputs, *(number for pair in graph.states for number in pair)}
    taken: set[int] = set()
    for start in graph.operators:
        chain = [start]
        for kind in pattern.operators[1:]:
            (*others, number) = chain[-1].outputs
            found = readers.get(number, [])
            if others or number in kept or len(found) != 1 or found[0].kind != kind:
                break
            chain.append(found[0])
        kinds = tuple(one.kind for one in chain)
        if kinds != pattern.operators or taken & {id(one) for one in chain}:
            continue
        taken |= {id(one) for one in chain}
        yield tuple(chain)


def _merged(graph: Graph, chain: tuple[Operator, ...], call: KernelCall) -> Graph:
    """One operator at the place of the chain's last one, when all of its inputs are made."""
    made = {number for one in chain for number in one.outputs}
    inputs = dict.fromkeys(n for one in chain for n in one.inputs if n not in made)
    merged = Operator(
        "+".join(one.kind for one in chain),
        tuple(inputs),
        chain[-1].outputs,
        External(lower=lambda graph, operator, core: call),
        tuple(source for one in chain for source in one.sources),
    )
    inner = {id(one) for one in chain[:-1]}
    operators = (
        merged if one is chain[-1] else one for one in graph.operators if id(one) not in inner
    )
    return graph.replaced(operators=tuple(operators))
