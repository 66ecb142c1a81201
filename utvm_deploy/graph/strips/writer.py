"""Writes a chain of layers as operators on a few rows at a time.

The strips of an operator are operators of the same kind on fewer rows. So their kernels, and their
bytes, are those of any other layer. Rows at the end of a window that the next strip reads again are
moved to the beginning of the next window (MOVE).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from utvm_deploy.graph.attributes import (
    Attributes,
    BatchMatmul,
    Concatenation,
    Convolution,
    Move,
    Pool,
    PoolAverages,
    PoolSums,
    Rearrange,
    Reshape,
    ResizeBilinear,
)
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.rewrite import compacted
from utvm_deploy.graph.strips.chains import Chain, Strips
from utvm_deploy.graph.strips.matrix_rows import reads_turned, strip_shape


def in_strips(graph: Graph, chain: Chain) -> Graph:
    """The graph with a chain computed in strips; every output byte stays the same."""
    strips = Strips(graph, chain)
    writer = _Writer(graph, strips)
    before = strips.none
    for ends in strips.ends:
        for index in range(len(strips.operators)):
            writer.write(index, before, ends)
            writer.park(index, before, ends)
        before = ends
    operators = (
        *graph.operators[: chain.first],
        *writer.operators,
        *writer.joined(),
        *graph.operators[chain.last + 1 :],
    )
    return compacted(graph.replaced(tensors=tuple(writer.tensors), operators=operators))


@dataclass(frozen=True)
class _Rows:
    """Rows ``first`` to ``end`` (excluded) of a tensor of the chain, as a separate tensor."""

    tensor: int
    first: int
    end: int


class _Writer:
    """Writes a chain's operators, strip by strip."""

    def __init__(self, graph: Graph, strips: Strips) -> None:
        self.tensors: list[Tensor] = list(graph.tensors)
        self.operators: list[Operator] = []
        self._graph, self._strips = graph, strips
        self._windows: dict[int, _Rows] = {}
        #: Of matrices: rows that were taken out of a tensor, and right sides that were turned.
        self._taken: dict[tuple[int, int, int], int] = {}
        self._turned_sides: dict[int, int] = {}
        self._parts: list[_Rows] = []
        self._sums: int | None = None

    def write(self, index: int, before: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """An operator's rows of one strip, and the window of its output that has them."""
        operator = self._strips.operators[index]
        output = operator.outputs[0]
        first, end = before[output], ends[output]
        if first == end:
            return
        kept = None
        if output != self._strips.result:
            kept = self._kept(operator, self._strips.first_needed(output, before))
        window = self._strips.windows[index]
        reads = [
            self._read(operator, number, self._strips.rows_read(index, place, first, end))
            for place, number in enumerate(operator.inputs)
        ]
        made = self._new(output, first, end)
        attributes = operator.attributes
        if self._strips.is_cut(end - first) and reads_turned(self._graph, operator):
            attributes, reads[1] = BatchMatmul(False, True), self._turned(operator, reads[1])
        low = window.first_read(first)
        if isinstance(attributes, ResizeBilinear):
            rows = attributes.neighbours(self._height(operator), self._rows(output))[first:end]
            rows = [(upper - low, lower - low, share) for upper, lower, share in rows]
            attributes = replace(attributes, rows=tuple(rows))
        elif isinstance(attributes, Rearrange):
            attributes = self._moves(attributes, reads[0], made.tensor, first, end, low)
        if isinstance(attributes, Convolution | Pool):
            height = self._height(operator)
            top, _, left, right = attributes.padding
            stride, span = int(window.stride), int(window.span)
            over = (end - 1) * stride + span - top - height
            top = max(top - first * stride, 0)
            attributes = replace(attributes, padding=(top, max(over, 0), left, right))
        self._add(operator, tuple(reads), made.tensor, attributes)
        if output == self._strips.result and self._strips.pool is not None:
            self._sum_up(self._strips.pool, made)
        elif output == self._strips.result:
            self._parts.append(made)
        elif kept is None:
            self._windows[output] = made
        else:
            self._windows[output] = self._join(operator, output, [kept, made])

    def park(self, index: int, before: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Move rows that later strips read out of the windows that this operator reads last."""
        for tensor in self._strips.last_reads(index):
            first = self._strips.parked_from(tensor, before, ends)
            if first is not None and self._windows[tensor].first < first:
                producer = self._strips.operators[self._strips.made[tensor]]
                self._windows[tensor] = self._moved(producer, self._windows[tensor], first)

    def joined(self) -> Iterator[Operator]:
        """The operator that makes the chain's output of its strips."""
        pool = self._strips.pool
        if pool is not None:
            a, (source, *_) = pool.attributes, pool.inputs
            assert isinstance(a, Pool) and source is not None and self._sums is not None
            _, height, width, _ = self._graph.tensors[source].shape
            averages = PoolAverages(height * width, a.clamp)
            yield replace(pool, kind="POOL_AVERAGES", inputs=(self._sums,), attributes=averages)
            return
        operator, result = self._strips.operators[-1], self._strips.result
        parts = tuple(part.tensor for part in self._parts)
        axis, whole = 1, self._graph.tensors[result]
        if self._strips.chain.matrix:
            axis = len(whole.shape) - 2
            shape = strip_shape(whole, self._strips.height(result))
            if shape != whole.shape:
                self.tensors.append(replace(whole, shape=shape))
                result = len(self.tensors) - 1
        yield Operator("CONCATENATION", parts, (result,), Concatenation(axis), operator.sources)
        if result != self._strips.result:
            whole_of = (self._strips.result,)
            yield Operator("RESHAPE", (result,), whole_of, Reshape(), operator.sources)

    def _sum_up(self, pool: Operator, rows: _Rows) -> None:
        """Add the rows of a strip to the sums of an average."""
        channels = self.tensors[rows.tensor].shape[-1]
        name = f"{self._graph.tensors[pool.outputs[0]].name}[sums of {rows.end} rows]"
        self.tensors.append(Tensor(name, (1, 1, 1, channels), "int32"))
        before = () if self._sums is None else (self._sums,)
        self._sums = len(self.tensors) - 1
        self._add(pool, (rows.tensor, *before), self._sums, PoolSums(), "POOL_SUMS")

    def _moves(
        self, a: Rearrange, source: int | None, made: int, first: int, end: int, low: int
    ) -> Rearrange:
        """What a crop or a resize moves for some of its rows, of a window from row ``low``."""
        assert source is not None
        rows = tuple(row - low for row in a.indices[1][first:end])
        indices = (a.indices[0], rows, *a.indices[2:])
        view, shape = (self.tensors[number].shape for number in (source, made))
        return replace(a, view=view, indices=indices, shape=shape)

    def _rows(self, tensor: int) -> int:
        return self._graph.tensors[tensor].shape[1]

    def _height(self, operator: Operator) -> int:
        number = operator.inputs[0]
        assert number is not None
        return self._graph.tensors[number].shape[1]

    def _kept(self, operator: Operator, first: int) -> _Rows | None:
        """The rows of the last window that are read again, moved."""
        output = operator.outputs[0]
        old = self._windows.get(output)
        if old is None or first >= old.end:
            return None
        return self._moved(operator, old, max(first, old.first))

    def _moved(self, operator: Operator, old: _Rows, first: int) -> _Rows:
        """The rows of a window from ``first`` on, moved; ``operator`` made them."""
        output = operator.outputs[0]
        moved = self._new(output, first, old.end)
        _, _, width, channels = self._graph.tensors[output].shape
        start = (first - old.first) * width * channels
        self._add(operator, (old.tensor,), moved.tensor, Move(start), "MOVE")
        return moved

    def _read(
        self, operator: Operator, number: int | None, rows: tuple[int, int] | None
    ) -> int | None:
        """An input of which an operator reads some rows; None: the whole input."""
        if number is None or rows is None:
            return number
        there = self._windows.get(number)
        if there is None:
            there = _Rows(number, 0, self._strips.height(number))
        low, high = rows
        assert there.first <= low and high <= there.end, "the window has what its readers need"
        if (low, high) == (there.first, there.end):
            return there.tensor
        if (number, low, high) in self._taken:
            return self._taken[number, low, high]
        part = self._new(number, low, high).tensor
        source, height = self.tensors[there.tensor], there.end - there.first
        view = height, math.prod(source.shape) // height
        kept = range(low - there.first, high - there.first)
        cut = self.tensors[part].shape
        if source.data is not None:
            data = source.data.reshape(view)[kept.start : kept.stop].reshape(cut)
            self.tensors[part] = replace(self.tensors[part], data=data)
        else:
            made = Rearrange(view, (tuple(kept), tuple(range(view[1]))), (0, 1), cut)
            self._add(operator, (there.tensor,), part, made, "SLICE")
        if self._strips.chain.matrix:
            self._taken[number, low, high] = part
        return part

    def _turned(self, operator: Operator, number: int | None) -> int:
        """The right side of a product, turned once for all strips of a matrix."""
        assert number is not None
        if number not in self._turned_sides:
            source = self.tensors[number]
            *outer, rows, columns = source.shape
            shape, axes = (*outer, columns, rows), tuple(range(len(outer)))
            whole = tuple(tuple(range(extent)) for extent in source.shape)
            made = Rearrange(source.shape, whole, (*axes, len(axes) + 1, len(axes)), shape)
            name = f"{source.name}[turned]"
            self.tensors.append(replace(source, name=name, shape=shape, source=None, rows=None))
            self._turned_sides[number] = len(self.tensors) - 1
            self._add(operator, (number,), len(self.tensors) - 1, made, "TRANSPOSE")
        return self._turned_sides[number]

    def _join(self, operator: Operator, tensor: int, parts: list[_Rows]) -> _Rows:
        made = self._new(tensor, parts[0].first, parts[-1].end)
        numbers = tuple(part.tensor for part in parts)
        self._add(operator, numbers, made.tensor, Concatenation(1), "CONCATENATION")
        return made

    def _new(self, tensor: int, first: int, end: int) -> _Rows:
        whole = self._graph.tensors[tensor]
        shape = (whole.shape[0], end - first, *whole.shape[2:])
        if self._strips.chain.matrix:
            shape = strip_shape(whole, end - first)
        name = f"{whole.name}[{first}:{end}]"
        self.tensors.append(replace(whole, name=name, shape=shape, rows=(first, end)))
        return _Rows(len(self.tensors) - 1, first, end)

    def _add(
        self,
        operator: Operator,
        inputs: tuple[int | None, ...],
        output: int,
        attributes: Attributes,
        kind: str | None = None,
    ) -> None:
        """Add an operator that computes a part of ``operator``, or moves rows of its output."""
        made = replace(operator, inputs=inputs, outputs=(output,), attributes=attributes)
        self.operators.append(replace(made, kind=kind) if kind else made)
