"""Which layers to compute in strips, so that a model takes a smaller arena.

The layers at the peak of memory become part of a chain (``graph/strips.py``). Its estimate counts
what is live: tensors that cross the chain, its windows and its result. What a plan really takes,
scratch included, is known once kernels are chosen. So there are several suggestions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from utvm_deploy.compiler.budgets import Budget, OverBudget, Tradeoff
from utvm_deploy.compiler.planning import Planned, Planner
from utvm_deploy.graph.input_rows import comes_in_rows
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.rewrite import consumers, producers
from utvm_deploy.graph.strip_writer import in_strips
from utvm_deploy.graph.strips import Chain, Strips, chain_ends, sums_up

#: Rows that enter a chain in each strip.
_PACES = (1, 2, 4)
#: Chains of a model.
_MOST_CHAINS = 4
#: A chain must lower what its layers need to this share at least.
_WORTHWHILE = 0.97
#: A layer outside of all chains is looked at if it needs this share of the peak.
_HIGH = 0.6
#: Of chains whose peak is within this factor of the least, the shortest is taken.
_NEAR = 1.02
#: A plan without strips is kept if it is at most so much slower than without a budget, as a share.
_LITTLE_LOSS = 0.02
#: Suggestions that are planned to the end.
_MOST_PLANNED = 5


@dataclass(frozen=True)
class Suggestion:
    """Chains of a graph, and about how many bytes are live at most with them."""

    chains: tuple[Chain, ...]
    live_bytes: int

    @property
    def layers(self) -> int:
        """How many layers are in its chains, and the rows of an input that comes in rows."""
        return sum(chain.last - chain.first + 1 for chain in self.chains)

    def applied(self, graph: Graph) -> Graph:
        """The graph with its chains in strips."""
        # The last one first: positions before it stay as they are.
        for chain in sorted(self.chains, key=lambda one: -one.first):
            graph = in_strips(graph, chain)
        return graph


def suggestions(graph: Graph, whole: Mapping[int, int]) -> list[Suggestion]:
    """Ways to compute a graph in strips; the least live bytes first.

    ``whole`` are the bytes that operators need without strips, by their positions.
    """
    live = _Live(graph, whole)
    found = list[Suggestion]()
    for chains in _with_input(graph, live) if comes_in_rows(graph) else _chosen(graph, live):
        for pace in _PACES:
            paced = tuple(
                replace(one, rows=_rows(graph, one.first, one.last, pace)) for one in chains
            )
            found.append(Suggestion(paced, live.peak(paced)))
    return sorted(found, key=lambda one: (one.live_bytes, len(one.chains)))


def _with_input(graph: Graph, live: _Live) -> Iterator[tuple[Chain, ...]]:
    """Chains that begin with the rows of the input, and those that fit them."""
    for last in chain_ends(graph, 0):
        first = (Chain(0, last, _rows(graph, 0, last, 1)),)
        yield first
        yield from _chosen(graph, live, first)


def _chosen(
    graph: Graph, live: _Live, chains: tuple[Chain, ...] = ()
) -> Iterator[tuple[Chain, ...]]:
    """One chain more each time, around the layer that needs most; with the smallest strips."""
    while len(chains) < _MOST_CHAINS:
        at, most = live.outside(chains)
        if most < _HIGH * live.peak(chains):
            return
        needs = {
            one: max(live.inside(one), live.outside((*chains, one))[1])
            for one in _chains_around(graph, at, chains)
        }
        least = min(needs.values(), default=most)
        if least > _WORTHWHILE * most:
            return
        near = [one for one, need in needs.items() if need <= _NEAR * least]
        chains = (*chains, min(near, key=lambda one: (one.last - one.first, needs[one])))
        yield chains


def _chains_around(graph: Graph, at: int, others: Sequence[Chain]) -> Iterator[Chain]:
    """Chains that contain operator ``at``, or begin behind it, and have none of ``others``."""
    for first in range(min(at + 1, len(graph.operators) - 1), -1, -1):
        if any(one.first <= first <= one.last for one in others):
            continue
        for last in chain_ends(graph, first):
            if any(one.first <= last and first <= one.last for one in others):
                break
            if last >= at:
                yield Chain(first, last, _rows(graph, first, last, 1))


def _rows(graph: Graph, first: int, last: int, pace: int) -> Fraction:
    """The rows of a chain's result for ``pace`` rows of its first output."""
    end = last - 1 if sums_up(graph, first, last) else last
    # Rows of the input are not computed: the pace is that of the first layer that is.
    begin = min(first + 1, end) if comes_in_rows(graph) and first == 0 else first
    heights = [graph.tensors[graph.operators[i].outputs[0]].shape[1] for i in (begin, end)]
    shrinking = max(round(heights[0] / heights[1]), 1)
    return Fraction(pace, shrinking)


def in_strips_if_smaller(graph: Graph, limits: Budget, planner: Planner) -> Planned:
    """The best plan of a graph within ``limits``, with chains in strips where that helps.

    A RAM budget asks for the fastest plan, other limits for the smallest arena. Raises OverBudget
    if there is no plan.
    """
    found, refused = list[tuple[Planned, Tradeoff]](), list[OverBudget]()
    try:
        planned, made = _with_tradeoff(planner.plan(graph, limits))
        fastest = made.fastest_bytes, made.fastest_cycles
        # Without strips, the whole input is in the arena.
        if not comes_in_rows(graph):
            if limits.ram and made.cycles <= fastest[1] * (1 + _LITTLE_LOSS):
                return planned
            found.append((planned, made))
    except OverBudget as error:
        refused.append(error)
        fastest = error.fastest
    most = limits.cycles
    if most is None and limits.loss is not None and not limits.ram:
        most = round(fastest[1] * (1 + limits.loss))
    whole = planner.whole(graph)
    for suggestion in _worth_planning(suggestions(graph, whole.live_bytes), limits, fastest[0]):
        streamed, budget = suggestion.applied(graph), Budget(limits.ram, most)
        try:
            planned, made = _with_tradeoff(planner.plan(streamed, budget, whole.layers))
        except OverBudget as error:
            refused.append(error)
            continue
        made = replace(made, fastest_bytes=fastest[0], fastest_cycles=fastest[1])
        found.append((planned, replace(made, streamed=suggestion.layers)))
    if not found and comes_in_rows(graph) and limits.loss is not None:
        # Strips cost more than the level allows: the fastest of them.
        return in_strips_if_smaller(graph, Budget(planner.board.main_ram.size), planner)
    least = min([made.least_bytes for _, made in found] + [one.least_bytes for one in refused])
    if not found:
        raise refused[0] if limits.ram is None else OverBudget.of_ram(limits.ram, least, fastest)
    best, made = min(found, key=lambda one: _merit(one[1], limits))
    return replace(best, tradeoff=replace(made, least_bytes=least))


def _with_tradeoff(planned: Planned) -> tuple[Planned, Tradeoff]:
    assert planned.tradeoff is not None, "a plan within limits has one"
    return planned, planned.tradeoff


def _worth_planning(
    found: Sequence[Suggestion], limits: Budget, fastest_bytes: int
) -> list[Suggestion]:
    """The suggestions that may be within a RAM budget, or smaller than the fastest plan."""
    if limits.ram is not None:
        fitting = [one for one in found if one.live_bytes <= limits.ram]
        # Those that just fit have the largest strips, and so the fewest calls.
        some = [*fitting[::-1][: _MOST_PLANNED - 1], *(fitting or found)[:1]]
        return list(dict.fromkeys(some))
    return [one for one in found if one.live_bytes < fastest_bytes][:_MOST_PLANNED]


def _merit(made: Tradeoff, limits: Budget) -> tuple[int, int]:
    if limits.ram is not None and limits.cycles is None:
        return made.cycles, made.arena_bytes
    return made.arena_bytes, made.cycles


class _Live:
    """How many bytes are live at the operators of a graph, in chains and outside of them."""

    def __init__(self, graph: Graph, whole: Mapping[int, int]) -> None:
        self._graph = graph
        self._whole = whole
        inputs = [one for one in graph.inputs if not graph.tensors[one].is_outside]
        self._first = dict.fromkeys(inputs, -1) | producers(graph)
        read = consumers(graph)
        self._last = {tensor: max(read.get(tensor, [made])) for tensor, made in self._first.items()}
        self._last |= dict.fromkeys(graph.outputs, len(graph.operators))
        for found, left in graph.states:
            self._first |= {found: -1}
            self._last |= {found: len(graph.operators), left: len(graph.operators)}
        self._of_chain: dict[Chain, int] = {}

    def peak(self, chains: Sequence[Chain]) -> int:
        """The most bytes that are live at once."""
        return max([self.outside(chains)[1], *map(self.inside, chains)])

    def outside(self, chains: Sequence[Chain]) -> tuple[int, int]:
        """The operator that needs most of those in no chain, and its bytes."""
        sizes = (
            (size, position)
            for position, size in self._whole.items()
            if not any(chain.first <= position <= chain.last for chain in chains)
        )
        size, position = max(sizes, default=(0, 0))
        return position, size

    def inside(self, chain: Chain) -> int:
        """The most bytes that are live while a chain is computed."""
        if chain not in self._of_chain:
            strips = Strips(self._graph, chain)
            consumed = {one for one in strips.sources if self._last[one] <= chain.last}
            apart = {*strips.made, *consumed}
            crossing = self._bytes(chain.first, chain.last, apart)
            self._of_chain[chain] = crossing + strips.live_bytes(consumed)
        return self._of_chain[chain]

    def _bytes(self, first: int, last: int, besides: Collection[int]) -> int:
        return sum(
            self._graph.tensors[tensor].size_bytes
            for tensor, made in self._first.items()
            if made <= last and self._last[tensor] >= first and tensor not in besides
        )
