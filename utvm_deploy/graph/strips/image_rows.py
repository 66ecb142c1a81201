"""Which rows of its images an operator reads for a row of its output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from utvm_deploy.graph.attributes import (
    Add,
    Concatenation,
    Convolution,
    Dequantize,
    Divide,
    Extremum,
    InputRows,
    LeakyRelu,
    Lookup,
    Multiply,
    OfOne,
    Pool,
    Prelu,
    Quantize,
    Rearrange,
    Relu,
    ResizeBilinear,
    SquaredDifference,
    Subtract,
)
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.signals.attributes import UtvmRgb565

#: Functions of one element of each input, with broadcasting.
BY_ELEMENT = (
    Add,
    Dequantize,
    Divide,
    Extremum,
    LeakyRelu,
    Multiply,
    OfOne,
    Prelu,
    Quantize,
    Relu,
    SquaredDifference,
    Subtract,
)


@dataclass(frozen=True)
class RowWindow:
    """Which rows of its inputs an operator reads for a row of its output, at most."""

    span: int | Fraction
    stride: int | Fraction
    top: int | Fraction  # rows of padding; negative where rows above are left out

    @classmethod
    def of(cls, first: Sequence[int], last: Sequence[int]) -> RowWindow | None:
        """The window around the first and last rows that are read; None if it jumps back."""
        count = max(len(first) - 1, 1)
        stride = Fraction(first[-1] - first[0], count)
        offsets = [one - row * stride for row, one in enumerate(first)]
        ends = [one - row * stride for row, one in enumerate(last)]
        span = max(ends) - min(offsets) + 1
        return cls(span, stride, -min(offsets)) if stride > 0 else None

    def first_read(self, row: int) -> int:
        """The first row that exists of those read for output row ``row`` and later ones."""
        return max(floor(row * self.stride - self.top), 0)

    def end_read(self, end: int) -> int:
        """The end of the rows that are read for output rows up to ``end``, which is excluded.

        It may be beyond the rows that there are, and so may ``end``.
        """
        return floor(self.reach(end))

    def reach(self, end: int | Fraction, unit: int = 1) -> int | Fraction:
        """The same in parts of a row, of which a row has ``unit``."""
        return end * self.stride + (self.span - self.top - self.stride) * unit


#: The same row.
SAME_ROW = RowWindow(1, 1, 0)


def row_window(graph: Graph, operator: Operator) -> RowWindow | None:
    """How an operator's rows depend on those of its inputs; None if strips cannot compute it."""
    a = operator.attributes
    output = graph.tensors[operator.outputs[0]]
    inputs = list(activations(graph, operator))
    if isinstance(a, InputRows) and _is_image(output):
        return SAME_ROW
    images = [output, *(graph.tensors[number] for number in inputs)]
    if len(operator.outputs) != 1 or not inputs or not all(map(_is_image, images)):
        return None
    if isinstance(a, Convolution) and len(inputs) == 1 and operator.inputs[0] == inputs[0]:
        number = operator.inputs[1]
        assert number is not None, "check_graph demands weights"
        weights = graph.tensors[number]
        span = (weights.shape[1] - 1) * a.dilations[0] + 1
        return RowWindow(span, a.strides[0], a.padding[0])
    if isinstance(a, Pool):
        return RowWindow(a.window[0], a.strides[0], a.padding[0])
    if isinstance(a, UtvmRgb565):
        return SAME_ROW
    if isinstance(a, Rearrange | ResizeBilinear):
        return _window_of_moves(graph.tensors[inputs[0]], output, a)
    is_by_row = isinstance(a, BY_ELEMENT) or (isinstance(a, Concatenation | Lookup) and a.axis == 3)
    whole = isinstance(a, Concatenation) or all(one.shape == output.shape for one in images)
    known = (graph.tensors[number] for number in operator.inputs if number is not None)
    # A constant is the same for every row.
    flat = all(len(one.shape) < 3 or one.shape[-3] == 1 for one in known if one.data is not None)
    return SAME_ROW if is_by_row and whole and flat else None


def _window_of_moves(
    image: Tensor, output: Tensor, a: Rearrange | ResizeBilinear
) -> RowWindow | None:
    """Of a crop or a resize, whose rows come in their order; None for anything else."""
    if isinstance(a, ResizeBilinear):
        if image.dtype == "float32" or a.rows:
            return None
        first, last, _ = zip(*a.neighbours(image.shape[1], output.shape[1]), strict=True)
        return RowWindow.of(first, last)
    in_order = a.order == (0, 1, 2, 3) and a.view == image.shape and a.shape == output.shape
    rows = a.indices[1] if in_order else (1, 0)
    return RowWindow.of(rows, rows) if rows == tuple(sorted(rows)) else None


def activations(graph: Graph, operator: Operator) -> Iterator[int]:
    for number in operator.inputs:
        if number is not None and graph.tensors[number].has_place:
            yield number


def _is_image(tensor: Tensor) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[0] == 1
