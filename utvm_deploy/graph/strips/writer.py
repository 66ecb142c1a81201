"""Writes a chain of layers as operators on a few rows at a time.

The strips of an operator are operators of the same kind on fewer rows. So their kernels, and their
bytes, are those of any other layer. Rows at the end of a window that the next strip reads again are
moved to the beginning of the next window (MOVE).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

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
from utvm_deploy.graph.strips.image_rows import RowWindow
from utvm_deploy.graph.strips.matrix_rows import reads_turned, strip_shape


def in_strips(graph: Graph, chain: Chain) -> Graph:
    """The graph with a chain computed in strips; every output byte stays the same."""
    strips = Strips(graph, chain)
    writer = _Writer(graph, strips)
    for before, ends in strips.turns:
        for index in range(len(strips.operators)):
            writer.write(index, before, ends)
            writer.park(index, before, ends)
    operators = (
        *graph.operators[: chain.first],
        *writer.operators,
        *writer.joined(),
        *graph.operators[chain.last + 1 :],
    )
    return compacted(graph.replaced(tensors=tuple(writer.tensors), operators=operators))


class _Writer:
    """Writes a chain's operators, strip by strip; each of their tensors says which rows it has."""

    def __init__(self, graph: Graph, strips: Strips) -> None:
        self.tensors: list[Tensor] = list(graph.tensors)
        self.operators: list[Operator] = []
        self._graph, self._strips = graph, strips
        #: The rows that are there of tensors of the chain, by the number of the whole tensor.
        self._windows: dict[int, int] = {}
        #: Of matrices: rows that were taken out of a tensor, and right sides that were turned.
        self._taken: dict[tuple[int, int, int], int] = {}
        self._turned_sides: dict[int, int] = {}
        self._parts: list[int] = []
        self._sums: int | None = None

    def write(self, index: int, before: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """An operator's rows of one strip, and the window of its output that has them."""
        strips = self._strips
        operator = strips.operators[index]
        output = operator.outputs[0]
        first, end = before[output], ends[output]
        if first == end:
            return
        parts = [] if output == strips.result else self._kept(operator, before)
        reads = [
            self._read(operator, number, strips.rows_read(index, place, first, end))
            for place, number in enumerate(operator.inputs)
        ]
        made = self._new(output, first, end)
        attributes = self._attributes(operator, strips.windows[index], reads[0], made)
        if strips.is_cut(end - first) and reads_turned(self._graph, operator):
            attributes, reads[1] = BatchMatmul(False, True), self._turned(operator, reads[1])
        self._add(operator, tuple(reads), made, attributes)
        if output != strips.result:
            self._windows[output] = self._joined_rows(operator, [*parts, made])
        elif strips.pool is not None:
            self._sum_up(strips.pool, made)
        else:
            self._parts.append(made)

    def _attributes(
        self, operator: Operator, window: RowWindow, read: int | None, made: int
    ) -> Attributes:
        """What an operator does for the rows of ``made``, of what it has ``read`` of its input."""
        a, source, (first, end) = operator.attributes, operator.inputs[0], self._rows(made)
        if source is None or read is None:
            return a
        low = window.first_read(first)
        if isinstance(a, ResizeBilinear):
            heights = (self._strips.height(one) for one in (source, operator.outputs[0]))
            rows = a.neighbours(*heights)[first:end]
            kept = ((upper - low, lower - low, share) for upper, lower, share in rows)
            return replace(a, rows=tuple(kept))
        if isinstance(a, Rearrange):
            moved = tuple(row - low for row in a.indices[1][first:end])
            view, shape = (self.tensors[one].shape for one in (read, made))
            indices = (a.indices[0], moved, *a.indices[2:])
            return replace(a, view=view, indices=indices, shape=shape)
        if isinstance(a, Convolution | Pool):
            top, _, left, right = a.padding
            stride, span = int(window.stride), int(window.span)
            over = (end - 1) * stride + span - top - self._strips.height(source)
            top = max(top - first * stride, 0)
            return replace(a, padding=(top, max(over, 0), left, right))
        return a

    def park(self, index: int, before: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Move rows that later strips read out of the windows that this operator reads last."""
        for tensor in self._strips.last_reads(index):
            first = self._strips.parked_from(tensor, before, ends)
            if first is not None and self._rows(self._windows[tensor])[0] < first:
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
        axis, whole = 1, self._graph.tensors[result]
        if self._strips.chain.matrix:
            axis = len(whole.shape) - 2
            shape = strip_shape(whole, self._strips.height(result))
            if shape != whole.shape:
                self.tensors.append(replace(whole, shape=shape))
                result = len(self.tensors) - 1
        parts, made = tuple(self._parts), Concatenation(axis)
        yield Operator("CONCATENATION", parts, (result,), made, operator.sources)
        if result != self._strips.result:
            whole_of = (self._strips.result,)
            yield Operator("RESHAPE", (result,), whole_of, Reshape(), operator.sources)

    def _sum_up(self, pool: Operator, rows: int) -> None:
        """Add the rows of a strip to the sums of an average."""
        channels = self.tensors[rows].shape[-1]
        name = f"{self._graph.tensors[pool.outputs[0]].name}[sums of {self._rows(rows)[1]} rows]"
        self.tensors.append(Tensor(name, (1, 1, 1, channels), "int32"))
        before = () if self._sums is None else (self._sums,)
        self._sums = len(self.tensors) - 1
        self._add(pool, (rows, *before), self._sums, PoolSums(), "POOL_SUMS")

    def _rows(self, part: int) -> tuple[int, int]:
        """The first row and the end of what a new tensor has of a tensor of the graph."""
        rows = self.tensors[part].rows
        assert rows is not None
        return rows

    def _kept(self, operator: Operator, before: Mapping[int, int]) -> list[int]:
        """The rows of the last window that are read again, moved."""
        output = operator.outputs[0]
        first, old = self._strips.first_needed(output, before), self._windows.get(output)
        if old is None or first >= self._rows(old)[1]:
            return []
        return [self._moved(operator, old, max(first, self._rows(old)[0]))]

    def _moved(self, operator: Operator, old: int, first: int) -> int:
        """The rows of a window from ``first`` on, moved; ``operator`` made them."""
        output, (begin, end) = operator.outputs[0], self._rows(old)
        moved = self._new(output, first, end)
        _, _, width, channels = self._graph.tensors[output].shape
        self._add(operator, (old,), moved, Move((first - begin) * width * channels), "MOVE")
        return moved

    def _read(
        self, operator: Operator, number: int | None, rows: tuple[int, int] | None
    ) -> int | None:
        """An input of which an operator reads some rows; None: the whole input."""
        if number is None or rows is None:
            return number
        there = self._windows.get(number, number)
        first, end = (0, self._strips.height(number)) if there == number else self._rows(there)
        low, high = rows
        assert first <= low and high <= end, "the window has what its readers need"
        if rows == (first, end):
            return there
        if (number, low, high) in self._taken:
            return self._taken[number, low, high]
        part = self._new(number, low, high)
        source, height = self.tensors[there], end - first
        view = height, math.prod(source.shape) // height
        kept = range(low - first, high - first)
        cut = self.tensors[part].shape
        if source.data is not None:
            data = source.data.reshape(view)[kept.start : kept.stop].reshape(cut)
            self.tensors[part] = replace(self.tensors[part], data=data)
        else:
            made = Rearrange(view, (tuple(kept), tuple(range(view[1]))), (0, 1), cut)
            self._add(operator, (there,), part, made, "SLICE")
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

    def _joined_rows(self, operator: Operator, parts: list[int]) -> int:
        """The rows of all parts, which follow each other."""
        if len(parts) == 1:
            return parts[0]
        ends = self._rows(parts[0])[0], self._rows(parts[-1])[1]
        made = self._new(operator.outputs[0], *ends)
        self._add(operator, tuple(parts), made, Concatenation(1), "CONCATENATION")
        return made

    def _new(self, tensor: int, first: int, end: int) -> int:
        """A tensor for some rows of a tensor of the graph."""
        whole = self._graph.tensors[tensor]
        shape = (whole.shape[0], end - first, *whole.shape[2:])
        if self._strips.chain.matrix:
            shape = strip_shape(whole, end - first)
        name = f"{whole.name}[{first}:{end}]"
        self.tensors.append(replace(whole, name=name, shape=shape, rows=(first, end)))
        return len(self.tensors) - 1

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
