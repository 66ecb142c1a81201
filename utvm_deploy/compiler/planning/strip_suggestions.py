"""Chains of layers to compute in strips, and about how many bytes are live with them.

The layers at the peak of memory become part of a chain (``graph/strips/chains.py``). Its estimate
counts what is live: tensors that cross the chain, its windows and its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from utvm_deploy.compiler.arena.shared_bytes import BUFFER_ALIGNMENT
from utvm_deploy.compiler.planning.pass_costs import moving_cycles, strip_cycles
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.rewrite import consumers, producers
from utvm_deploy.graph.strips.chains import Chain, Strips, chain_ends, rows_of_matrix, sums_up
from utvm_deploy.graph.strips.input_rows import comes_in_rows
from utvm_deploy.graph.strips.writer import in_strips
from utvm_deploy.targets.contract.costs import CostTable

#: Rows that enter a chain in each strip.
_PACES = (1, 2, 3, 4)
#: Strips of each matrix at these paces.
_STRIPS_OF_MATRIX = (16, 8, 4, 2)
#: Chains of a model.
_MOST_CHAINS = 4
#: Layers of a chain: with more, the search for one takes long.
_LONGEST = 64
#: A chain must lower what its layers need to this share at least.
WORTHWHILE = 0.97
#: A layer outside of all chains is looked at if it needs this share of the peak.
_HIGH = 0.6
#: Of chains whose peak is within this factor of the least, the shortest is taken.
_NEAR = 1.02


@dataclass(frozen=True)
class Suggestion:
    """Chains of a graph, and about how many bytes are live at most with them."""

    chains: tuple[Chain, ...]
    live_bytes: int

    @property
    def layers(self) -> int:
        """How many layers are in its chains, and the rows of an input that comes in rows."""
        return sum(chain.last - chain.first + 1 for chain in self.chains)

    def extra_cycles(self, graph: Graph, table: CostTable) -> float:
        """About how many cycles its strips take more than whole layers."""
        return sum(_extra_cycles(Strips(graph, chain), table) for chain in self.chains)

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
            paced = tuple(_paced(graph, one, pace) for one in chains)
            parked = tuple(replace(one, parks=True) for one in paced)
            found.append(Suggestion(paced, live.peak(paced)))
            if live.peak(parked) < live.peak(paced):
                found.append(Suggestion(parked, live.peak(parked)))
    return sorted(found, key=lambda one: (one.live_bytes, len(one.chains)))


def _with_input(graph: Graph, live: _Live) -> Iterator[tuple[Chain, ...]]:
    """Chains that begin with the rows of the input, and those that fit them."""
    for last in chain_ends(graph, 0):
        first = (_paced(graph, Chain(0, last, Fraction(1)), 1),)
        yield first
        yield from _chosen(graph, live, first)


def _chosen(
    graph: Graph, live: _Live, chains: tuple[Chain, ...] = ()
) -> Iterator[tuple[Chain, ...]]:
    """One chain more each time, around the layer that needs most; with the smallest strips.

    Chains of the same layers, such as the attention of each block, are added together.
    """
    for _ in range(_MOST_CHAINS - len(chains)):
        at, most = live.outside(chains)
        if most < _HIGH * live.peak(chains):
            return
        found = (_with_equal_ones(graph, one, chains) for one in _chains_around(graph, at, chains))
        needs = {
            some: max(live.inside(some[0]), live.outside((*chains, *some))[1]) for some in found
        }
        least = min(needs.values(), default=most)
        if least > WORTHWHILE * most:
            return
        near = [some for some, need in needs.items() if need <= _NEAR * least]
        added = min(near, key=lambda some: (some[0].last - some[0].first, needs[some]))
        chains = (*chains, *added)
        yield chains


def _with_equal_ones(graph: Graph, chain: Chain, others: Sequence[Chain]) -> tuple[Chain, ...]:
    """A chain, and behind it those of matrices that have the same layers and none of ``others``."""
    if not chain.matrix:
        return (chain,)
    layers = [(one.kind, graph.tensors[one.outputs[0]].shape) for one in graph.operators]
    length, found = chain.last - chain.first, [chain]
    for first in range(len(layers) - length):
        last = first + length
        is_free = not any(one.overlaps(first, last) for one in (*others, *found))
        is_equal = layers[first : last + 1] == layers[chain.first : chain.last + 1]
        if is_free and is_equal and last in chain_ends(graph, first, of_matrices=True):
            found.append(replace(chain, first=first, last=last))
    return tuple(found)


def _chains_around(graph: Graph, at: int, others: Sequence[Chain]) -> Iterator[Chain]:
    """Chains that contain operator ``at``, or begin behind it, and have none of ``others``."""
    for first in range(min(at + 1, len(graph.operators) - 1), -1, -1):
        for of_matrices in (False, True):
            for last in chain_ends(graph, first, of_matrices=of_matrices):
                is_free = not any(one.overlaps(first, last) for one in others)
                if not is_free or last - first >= _LONGEST:
                    break
                matrix = rows_of_matrix(graph, first, last) if of_matrices else 0
                if last >= at and (matrix or not of_matrices):
                    yield _paced(graph, Chain(first, last, Fraction(1), matrix=matrix), 1)


def _paced(graph: Graph, chain: Chain, pace: int) -> Chain:
    """The chain with strips of some rows; the more, the higher the ``pace`` is."""
    operators = graph.operators[chain.first : chain.last + 1]
    outputs = [graph.tensors[operator.outputs[0]] for operator in operators]
    if chain.matrix:
        # Strips that begin at aligned addresses need no copy where they are put together.
        result = outputs[-1]
        row_bytes = result.element.size_bytes(result.shape[-1])
        aligned = BUFFER_ALIGNMENT // gcd(BUFFER_ALIGNMENT, row_bytes)
        rows = -(-chain.matrix // _STRIPS_OF_MATRIX[pace - 1])
        return replace(chain, rows=Fraction(min(-(-rows // aligned) * aligned, chain.matrix)))
    # The rows of the result for ``pace`` rows of the first output.
    made = outputs[:-1] if sums_up(graph, chain.first, chain.last) else outputs
    # Rows of the input are not computed: the pace is that of the first layer that is.
    begin = made[:2][-1] if comes_in_rows(graph) and chain.first == 0 else made[0]
    shrinking = max(round(begin.shape[1] / made[-1].shape[1]), 1)
    return replace(chain, rows=Fraction(pace, shrinking))


def _extra_cycles(strips: Strips, table: CostTable) -> float:
    """What the strips of a chain take more than its layers: calls, and rows that are moved."""
    found = 0.0
    cycles = [strip_cycles(strips.graph, operator, table) for operator in strips.operators]
    for before, ends in strips.turns:
        for operator, each in zip(strips.operators, cycles, strict=True):
            output = operator.outputs[0]
            if ends[output] == before[output]:
                continue
            found += each
            if output != strips.result:
                rows = max(before[output] - strips.first_needed(output, before), 0)
                moved = rows * strips.row_bytes(output)
                found += moving_cycles(moved, table) if moved else 0.0
                parked = strips.parked_from(output, before, ends)
                if parked is not None:
                    moved = (ends[output] - parked) * strips.row_bytes(output)
                    found += moving_cycles(moved, table)
    return found


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
            if not any(chain.overlaps(position, position) for chain in chains)
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
