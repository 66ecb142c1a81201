"""Which layers can be computed together in strips of rows, and which rows each strip makes.

Of each activation inside such a chain, only a window of rows exists at a time: those that a layer
of the chain still reads. In each strip, an operator makes the rows that the others need next, and
no row is made twice. What a chain reads from outside is whole, and so is its result.
``writer.py`` writes the operators of the strips.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import floor, gcd, lcm
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.attributes import BatchMatmul, FullyConnected, Pool
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import consumers
from utvm_deploy.graph.strips.image_rows import SAME_ROW, activations, row_window
from utvm_deploy.graph.strips.matrix_rows import follows, is_by_rows, rows_of, rows_read

Table: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Chain:
    """Operators ``first`` to ``last`` of a graph, by position, in strips of ``rows`` rows.

    The strips are of the output of ``last``. All other outputs are read inside the chain only.
    """

    first: int
    last: int
    rows: Fraction
    #: Whether rows of a window that later strips read again are moved to a separate place once
    #: this strip has read them. The rest of the window is then free for other layers.
    parks: bool = False
    #: Rows of each matrix, if the strips have rows of matrices (``matrix_rows.py``). No strip has
    #: rows of two matrices. 0: the rows are those of images.
    matrix: int = 0

    def overlaps(self, first: int, last: int) -> bool:
        """Whether it has some of the operators ``first`` to ``last``."""
        return self.first <= last and first <= self.last


class _Facts:
    """Who reads each tensor of a graph, and the windows of its operators."""

    def __init__(self, graph: Graph) -> None:
        self.read = consumers(graph)
        self.windows = [row_window(graph, operator) for operator in graph.operators]
        self.by_rows = [is_by_rows(graph, operator) for operator in graph.operators]


_FACTS: WeakKeyDictionary[Graph, _Facts] = WeakKeyDictionary()


def _facts_of(graph: Graph) -> _Facts:
    """Found once: thousands of chains of a graph may be looked at."""
    if graph not in _FACTS:
        _FACTS[graph] = _Facts(graph)
    return _FACTS[graph]


def chain_ends(graph: Graph, first: int, *, of_matrices: bool = False) -> Iterator[int]:
    """Positions at which a chain that begins with operator ``first`` may end, one after another."""
    facts = _facts_of(graph)
    read = facts.read
    states = {number for pair in graph.states for number in pair}
    farthest, made = first, set[int]()
    for position in range(first, len(graph.operators)):
        operator = graph.operators[position]
        if of_matrices:
            if not facts.by_rows[position] or not _is_in_step(graph, operator, made):
                return
            made.add(operator.outputs[0])
        elif facts.windows[position] is None:
            return
        inside = [number for number in operator.inputs if number is not None]
        if states & {*inside, *operator.outputs}:
            return
        output = operator.outputs[0]
        if farthest <= position > first:
            yield position
        if output in graph.outputs or not read.get(output):
            return
        farthest = max(farthest, *read[output])


def _is_in_step(graph: Graph, operator: Operator, made: Collection[int]) -> bool:
    """Whether an operator reads something of what its chain has ``made``, by the same rows."""
    places = [place for place, number in enumerate(operator.inputs) if number in made]
    return all(follows(graph, operator, place) for place in places) and bool(places or not made)


def rows_of_matrix(graph: Graph, first: int, last: int) -> int:
    """The rows of the matrices of a chain; 0 if none of its layers multiplies matrices."""
    operators = graph.operators[first : last + 1]
    if not any(isinstance(one.attributes, BatchMatmul | FullyConnected) for one in operators):
        return 0
    return gcd(*(graph.tensors[one.outputs[0]].shape[-2] for one in operators))


def sums_up(graph: Graph, first: int, last: int) -> bool:
    """Whether the last operator of a chain averages all rows of the one before, for int8."""
    operator, source = graph.operators[last], graph.operators[last - 1].outputs[0]
    a, image = operator.attributes, graph.tensors[source]
    is_average = operator.kind == "AVERAGE_POOL_2D" and operator.inputs[0] == source
    if not isinstance(a, Pool) or not is_average or image.dtype != "int8":
        return False
    height, width = image.shape[1:3]
    is_whole = a.window[0] >= height and a.window[1] >= width
    is_one = graph.tensors[operator.outputs[0]].shape[1:3] == (1, 1)
    is_read = any(source in one.inputs for one in graph.operators[first:last])
    return is_whole and is_one and not is_read


class Strips:
    """Which rows of its tensors a chain makes and keeps in each strip."""

    def __init__(self, graph: Graph, chain: Chain) -> None:
        self.graph = graph
        self.chain = chain
        operators = graph.operators[chain.first : chain.last + 1]
        #: The average over all rows that ends the chain; rows are summed up, and not kept.
        self.pool = operators[-1] if sums_up(graph, chain.first, chain.last) else None
        self.operators = operators[:-1] if self.pool else operators
        windows = _facts_of(graph).windows[chain.first : chain.first + len(self.operators)]
        self.windows = [SAME_ROW if chain.matrix else one or SAME_ROW for one in windows]
        self.made = {operator.outputs[0]: i for i, operator in enumerate(self.operators)}

    @property
    def result(self) -> int:
        """What the strips make: the chain's output, or the tensor that it averages."""
        return self.operators[-1].outputs[0]

    def height(self, tensor: int) -> int:
        """Rows of a tensor."""
        one = self.graph.tensors[tensor]
        return rows_of(one) if self.chain.matrix else one.shape[1]

    def is_cut(self, rows: int) -> bool:
        """Whether a strip with that number of ``rows`` is one of several of a matrix."""
        return rows < self.chain.matrix

    def rows_read(self, index: int, place: int, first: int, end: int) -> tuple[int, int] | None:
        """The rows of an input that are read for rows ``first`` to ``end``; None if it has none.

        ``index`` is the operator's position in the chain, ``place`` that of the input.
        """
        operator, window = self.operators[index], self.windows[index]
        if self.chain.matrix:
            return rows_read(self.graph, operator, place, first, end)
        number = operator.inputs[place]
        if number is None or not self.graph.tensors[number].has_place:
            return None
        return window.first_read(first), min(window.end_read(end), self.height(number))

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Tensor that is made inside -> the operators of the chain that read it."""
        found: dict[int, list[int]] = {tensor: [] for tensor in self.made}
        for index, operator in enumerate(self.operators):
            for number in {*operator.inputs} & self.made.keys():
                assert number is not None
                found[number].append(index)
        return {tensor: tuple(indices) for tensor, indices in found.items()}

    @cached_property
    def turns(self) -> tuple[tuple[Mapping[int, int], Mapping[int, int]], ...]:
        """Of each strip: tensor -> how many of its rows are there before it, and after it.

        The first strips make no row of the result yet: rows enter the chain at an even pace.
        """
        ends = ([0] * len(self.made), *self._after.tolist())
        return tuple(pairwise(dict(zip(self.made, after, strict=True)) for after in ends))

    @cached_property
    def _after(self) -> Table:
        """[strip, operator]: how many rows of its output there are."""
        if self.chain.matrix:
            matrix, pace = self.chain.matrix, floor(self.chain.rows)
            ends_of_one = [*range(pace, matrix, pace), matrix]
            starts = np.arange(0, self.height(self.result), matrix)
            each = (starts[:, None] + ends_of_one).reshape(-1, 1)
            return np.broadcast_to(each, (len(each), len(self.made)))
        pace, unit = self.chain.rows.numerator, self.chain.rows.denominator
        lines = self._lines(unit)
        flat = [line for some in lines for line in some.items()]
        # A resize has strides that are parts of a row: all count in smaller parts then.
        fine = lcm(*(Fraction(one).denominator for line in flat for one in line))
        slopes, bases = np.array([[int(one * fine) for one in line] for line in flat]).T
        starts = np.cumsum([0, *map(len, lines[:-1])])
        end = self.height(self.result) * unit
        # With these rows of the result, there is no row of any tensor yet.
        nothing = int(((unit * fine - 1 - bases) // slopes).min())
        ends = end - pace * np.arange(max(-(-(end - nothing) // pace), 0))
        wanted = np.maximum.reduceat(ends[:, None] * slopes + bases, starts, axis=1)
        wanted //= unit * fine
        found = np.clip(wanted, 0, [self.height(tensor) for tensor in self.made])
        is_new = np.ones(len(found), dtype=bool)
        is_new[1:] = (found[1:] != found[:-1]).any(axis=1)
        after: Table = found[is_new][::-1]
        return after

    def _lines(self, unit: int) -> list[Mapping[int | Fraction, int | Fraction]]:
        """The rows wanted of each tensor: the highest of some lines in the rows of the result.

        They are here by their slopes, with what they begin at; both in parts of a row.
        """
        lines: list[dict[int | Fraction, int | Fraction]] = [{} for _ in self.operators]
        lines[-1][1] = 0
        for index in reversed(range(len(self.operators) - 1)):
            for reader in self.readers[self.operators[index].outputs[0]]:
                stride = self.windows[reader].stride
                for slope, base in lines[reader].items():
                    base = self.windows[reader].reach(base, unit)
                    known = lines[index].get(slope * stride, base)
                    lines[index][slope * stride] = max(known, base)
        return list(lines)

    def first_needed(self, tensor: int, before: Mapping[int, int]) -> int:
        """The first row that strips still read; ``before`` are the ends before these strips."""
        firsts = (
            self.windows[i].first_read(before[self.operators[i].outputs[0]])
            for i in self.readers[tensor]
        )
        return min(firsts)

    def last_reads(self, index: int) -> list[int]:
        """The tensors of the chain that no later operator reads."""
        inputs = {number for number in self.operators[index].inputs if number in self.made}
        return sorted(one for one in inputs if one is not None and self.readers[one][-1] == index)

    def parked_from(
        self, tensor: int, before: Mapping[int, int], ends: Mapping[int, int]
    ) -> int | None:
        """The first of the rows that are moved out of a window after a strip; None: none are."""
        if not self.chain.parks or ends[tensor] == before[tensor]:
            return None
        outputs = (self.operators[i].outputs[0] for i in self.readers[tensor])
        if all(ends[output] == self.height(output) for output in outputs):
            return None
        first = self.first_needed(tensor, ends)
        is_part = min(self.first_needed(tensor, before), before[tensor]) < first < ends[tensor]
        return first if is_part else None

    @cached_property
    def sources(self) -> Mapping[int, tuple[int, ...]]:
        """Activation from outside -> the operators of the chain that read it."""
        found: dict[int, list[int]] = {}
        for index, operator in enumerate(self.operators):
            for number in activations(self.graph, operator):
                place = operator.inputs.index(number)
                if self.chain.matrix and not follows(self.graph, operator, place):
                    continue  # other rows are read again by later strips
                if number not in self.made:
                    found.setdefault(number, []).append(index)
        return {tensor: tuple(indices) for tensor, indices in found.items()}

    def live_bytes(self, consumed: Collection[int]) -> int:
        """The most bytes of windows, result and sources in a strip.

        ``consumed`` are the sources whose rows are not needed once the chain has read them.
        """
        before = np.vstack([np.zeros_like(self._after[:1]), self._after[:-1]])
        sizes = np.array([self.row_bytes(tensor) for tensor in self.made])
        reads = self._first_reads(before)
        needed = np.minimum(self._first_needed(reads), before)
        needed[:, -1] = 0 if self.pool is None else before[:, -1]
        held = (self._after - needed) * sizes
        total = np.zeros(len(before), dtype=np.int64)  # of each strip, in bytes
        for tensor in consumed:
            rows = self.height(tensor) - reads[:, self.sources[tensor]].min(axis=1)
            total += np.maximum(rows, 0) * self.row_bytes(tensor)
        if self.chain.parks or self.chain.matrix:
            return self._most_with_parking(total, held, sizes)
        return int((total + held.sum(axis=1)).max(initial=0))

    def _most_with_parking(self, total: Table, held: Table, sizes: Table) -> int:
        """The most bytes at any operator of a strip; ``total`` are those of the sources.

        Of tensors that no later operator reads, only the rows count that later strips read.
        """
        needed = self._first_needed(self._first_reads(self._after))
        left = np.maximum(self._after - needed, 0) * sizes
        left[:, -1] = held[:, -1] if self.pool is None else 0
        # What is there of each tensor, first from the strip before.
        there = np.vstack([np.zeros_like(left[:1]), left[:-1]])
        total, most = total + there.sum(axis=1), 0
        for index, operator in enumerate(self.operators):
            total += held[:, index] - there[:, index]
            most = max(most, int(total.max(initial=0)))
            done = [self.made[tensor] for tensor in self.last_reads(index)]
            for one in (*done, index) if operator.outputs[0] == self.result else done:
                total += left[:, one] - held[:, one]
        return max(most, int(total.max(initial=0)))

    def _first_reads(self, before: Table) -> Table:
        """[strip, operator]: the first row that it still reads."""
        flat = [(Fraction(one.stride), Fraction(one.top)) for one in self.windows]
        fine = lcm(*(one.denominator for pair in flat for one in pair))
        strides, tops = np.array([[int(one * fine) for one in pair] for pair in flat]).T
        reads: Table = np.maximum((before * strides - tops) // fine, 0)
        return reads

    def _first_needed(self, reads: Table) -> Table:
        """[strip, operator]: the first row of its output that is still read; 0 of the result."""
        readers = [self.readers[operator.outputs[0]] for operator in self.operators[:-1]]
        found = np.zeros_like(reads)
        if readers:
            starts = np.cumsum([0, *map(len, readers[:-1])])
            flat = [reader for some in readers for reader in some]
            found[:, :-1] = np.minimum.reduceat(reads[:, flat], starts, axis=1)
        return found

    def row_bytes(self, tensor: int) -> int:
        """Bytes of a row of a tensor."""
        return self.graph.tensors[tensor].size_bytes // self.height(tensor)
