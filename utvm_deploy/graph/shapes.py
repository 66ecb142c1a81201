"""Shape rules: the shapes of an operator's outputs, from its inputs and attributes.

A rule gives the shape; ``check.py`` compares. TFLite leaves some choices to the file: RESHAPE's
shape, and whether MEAN and FULLY_CONNECTED keep dimensions. There the rule returns the legal shape
that is nearest to the declared output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.attribute_values import Padding, Shape
from utvm_deploy.graph.attributes import (
    ArgExtremum,
    BatchMatmul,
    Concatenation,
    Convolution,
    Convolution3D,
    External,
    Gather,
    Lstm,
    Mean,
    OneHot,
    Pad,
    Pool,
    Rearrange,
    Reduce,
    ResizeBilinear,
    Sum,
    Svdf,
    TopPositions,
    TransposeConvolution,
)
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.signals.attributes import Signal
from utvm_deploy.graph.signals.shapes import SIGNAL_RULES

ShapeRule: TypeAlias = Callable[[Graph, Operator], tuple[Shape, ...]]

_A = TypeVar("_A")


def input_tensor(graph: Graph, operator: Operator, position: int) -> Tensor:
    """An input that must be there."""
    number = operator.inputs[position] if position < len(operator.inputs) else None
    if number is None:
        raise ModelError(f"it lacks input {position}")
    return graph.tensors[number]


def attributes_of(operator: Operator, expected: type[_A]) -> _A:
    """The operator's attributes, of the class that its kind asks for."""
    if not isinstance(operator.attributes, expected):
        found = type(operator.attributes).__name__
        raise ModelError(f"its attributes are {found} instead of {expected.__name__}")
    return operator.attributes


def _windows(
    size: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    padding: Padding,
) -> tuple[int, int]:
    """Output rows and columns of a window that slides over an image."""
    top, bottom, left, right = padding
    rows = size[0] + top + bottom - ((window[0] - 1) * dilations[0] + 1)
    columns = size[1] + left + right - ((window[1] - 1) * dilations[1] + 1)
    if rows < 0 or columns < 0:
        raise ModelError(f"its window {window} is larger than its input of {size}")
    return rows // strides[0] + 1, columns // strides[1] + 1


def _convolution(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    x, weights = input_tensor(graph, operator, 0), input_tensor(graph, operator, 1)
    a = attributes_of(operator, Convolution)
    batch, height, width, channels = x.shape
    depthwise = operator.kind == "DEPTHWISE_CONV_2D"
    if depthwise:
        fits = (weights.shape[0], weights.shape[3]) == (1, channels * a.depth_multiplier)
    else:
        groups, rest = divmod(channels, weights.shape[3])
        fits = rest == 0 and groups > 0 and weights.shape[0] % groups == 0
    if not fits:
        raise ModelError(f"weights of shape {weights.shape} do not fit an input of {x.shape}")
    window = (weights.shape[1], weights.shape[2])
    rows, columns = _windows((height, width), window, a.strides, a.dilations, a.padding)
    return ((batch, rows, columns, weights.shape[3] if depthwise else weights.shape[0]),)


def _convolution_3d(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    x, weights = input_tensor(graph, operator, 0), input_tensor(graph, operator, 1)
    a = attributes_of(operator, Convolution3D)
    batch, *extents, channels = x.shape
    *window, inputs, outputs = weights.shape
    spans = [(taps - 1) * step + 1 for taps, step in zip(window, a.dilations, strict=True)]
    rest = [
        extent + sum(padding) - span
        for extent, padding, span in zip(extents, a.padding, spans, strict=True)
    ]
    if inputs != channels or min(rest) < 0:
        raise ModelError(f"weights of shape {weights.shape} do not fit an input of {x.shape}")
    places = (left // stride + 1 for left, stride in zip(rest, a.strides, strict=True))
    return ((batch, *places, outputs),)


def _pool(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    batch, height, width, channels = input_tensor(graph, operator, 0).shape
    a = attributes_of(operator, Pool)
    rows, columns = _windows((height, width), a.window, a.strides, (1, 1), a.padding)
    return ((batch, rows, columns, channels),)


def _fully_connected(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    x, weights = input_tensor(graph, operator, 0), input_tensor(graph, operator, 1)
    outputs, depth = weights.shape
    elements = math.prod(x.shape)
    if elements % depth:
        raise ModelError(f"weights of shape {weights.shape} do not fit an input of {x.shape}")
    kept = (*x.shape[:-1], outputs)
    declared = graph.tensors[operator.outputs[0]].shape
    if declared == kept and x.shape[-1] == depth:
        return (kept,)
    return ((elements // depth, outputs),)


def _broadcast(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    return (
        _broadcast_shape(*(input_tensor(graph, operator, position).shape for position in (0, 1))),
    )


def _as_declared(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    return tuple(graph.tensors[number].shape for number in operator.outputs)


def _select(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    condition, x, y = select_sides(graph, operator)
    return (_broadcast_shape(condition, _broadcast_shape(x, y)),)


def select_sides(graph: Graph, operator: Operator) -> list[Shape]:
    """The shapes of SELECT's inputs as they broadcast: without V2 a condition may be of rows."""
    condition, x, y = (input_tensor(graph, operator, i).shape for i in range(3))
    if operator.kind == "SELECT":
        if x != y:
            raise ModelError(f"it selects of {x} and {y}, which have different shapes")
        if condition not in ((), x):
            if condition != x[:1]:
                raise ModelError(f"a condition of {condition} does not fit {x}")
            condition = (*condition, *(1 for _ in x[1:]))
    return [condition, x, y]


def _broadcast_shape(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    result = []
    for one, other in pairs:
        if one != other and 1 not in (one, other):
            raise ModelError(f"shapes {a} and {b} cannot be broadcast together")
        result.append(max(one, other))
    return tuple(result)


def _transpose_conv(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    """Any output fits whose convolution back has the input's rows and columns, or fewer."""
    x, weights = input_tensor(graph, operator, 0), input_tensor(graph, operator, 1)
    declared = graph.tensors[operator.outputs[0]].shape
    attributes_of(operator, TransposeConvolution)
    if weights.shape[3] != x.shape[3] or len(declared) != 4:
        raise ModelError(f"weights of shape {weights.shape} do not fit an input of {x.shape}")
    return ((x.shape[0], *declared[1:3], weights.shape[0]),)


def _batch_matmul(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    a = attributes_of(operator, BatchMatmul)
    left, right = (input_tensor(graph, operator, i).shape for i in (0, 1))
    if min(len(left), len(right)) < 2:
        raise ModelError(f"{left} and {right} are not matrices")
    rows, depth = left[:-3:-1] if a.left_turned else left[-2:]
    other_depth, columns = right[:-3:-1] if a.right_turned else right[-2:]
    if depth != other_depth:
        raise ModelError(f"rows of {depth} should be multiplied by columns of {other_depth}")
    return ((*_broadcast_shape(left[:-2], right[:-2]), rows, columns),)


def _resize(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    x = input_tensor(graph, operator, 0).shape
    declared = graph.tensors[operator.outputs[0]].shape
    attributes_of(operator, ResizeBilinear)
    if len(declared) != 4 or len(x) != 4:
        raise ModelError(f"{x} and {declared} are not both images")
    return ((x[0], *declared[1:3], x[3]),)


def _svdf(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    batch = input_tensor(graph, operator, 0).shape[0]
    filters = input_tensor(graph, operator, 1).shape[0]
    rank = attributes_of(operator, Svdf).rank
    return ((batch, filters // rank), input_tensor(graph, operator, 4).shape)


def _lstm(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    attributes_of(operator, Lstm)
    x = input_tensor(graph, operator, 0).shape
    hidden, cell = (input_tensor(graph, operator, i).shape for i in (13, 14))
    return ((*x[:2], hidden[1]), hidden, cell)


def _arg_extremum(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    shape = input_tensor(graph, operator, 0).shape
    axis = attributes_of(operator, ArgExtremum).axis
    return ((*shape[:axis], *shape[axis + 1 :]),)


def _reduced(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    shape = input_tensor(graph, operator, 0).shape
    a = operator.attributes
    axes = a.axes if isinstance(a, Reduce | Sum) else attributes_of(operator, Mean).axes
    kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
    if len(graph.tensors[operator.outputs[0]].shape) == len(shape):
        return (kept,)
    return (tuple(d for i, d in enumerate(shape) if i not in axes),)


def _pad(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    shape = input_tensor(graph, operator, 0).shape
    paddings = attributes_of(operator, Pad).paddings
    return (tuple(d + before + after for d, (before, after) in zip(shape, paddings, strict=True)),)


def _reshape(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    shape = input_tensor(graph, operator, 0).shape
    declared = graph.tensors[operator.outputs[0]].shape
    if math.prod(shape) != math.prod(declared):
        raise ModelError(f"{shape} and {declared} have different numbers of elements")
    return (declared,)


def _rearrange(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    shape = input_tensor(graph, operator, 0).shape
    a = attributes_of(operator, Rearrange)
    if math.prod(shape) != math.prod(a.view):
        raise ModelError(f"{shape} and {a.view} have different numbers of elements")
    if sorted(a.order) != list(range(len(a.view))) or len(a.indices) != len(a.view):
        raise ModelError(f"{a.order} is not an order of the dimensions of {a.view}")
    for extent, indices in zip(a.view, a.indices, strict=True):
        if not indices or min(indices) < 0 or max(indices) >= extent:
            raise ModelError(f"it takes positions outside of a dimension of {extent}")
    if math.prod(a.shape) != math.prod(map(len, a.indices)):
        raise ModelError(f"what it takes does not fill {a.shape}")
    return (a.shape,)


def _gather(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    """With constant positions, elements only move."""
    if isinstance(operator.attributes, Rearrange):
        return _rearrange(graph, operator)
    a = attributes_of(operator, Gather)
    x, positions = (input_tensor(graph, operator, i).shape for i in (0, 1))
    if not 0 <= a.batches <= a.axis < len(x) or x[: a.batches] != positions[: a.batches]:
        raise ModelError(f"positions of shape {positions} do not fit {x}")
    return ((*x[: a.axis], *positions[a.batches :], *x[a.axis + 1 :]),)


def _update_slice(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    x, part, starts = (input_tensor(graph, operator, i).shape for i in range(3))
    fits = len(part) == len(x) and all(
        size <= extent for size, extent in zip(part, x, strict=False)
    )
    if not fits or starts != (len(x),):
        raise ModelError(f"a part of shape {part} at {starts} places does not fit into {x}")
    return (x,)


def _one_hot(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    a = attributes_of(operator, OneHot)
    positions = input_tensor(graph, operator, 0).shape
    return ((*positions[: a.axis], a.depth, *positions[a.axis :]),)


def _top_positions(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    shape = input_tensor(graph, operator, 0).shape
    return ((*shape[:-1], attributes_of(operator, TopPositions).count),)


def _concatenation(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    a = attributes_of(operator, Concatenation)
    shapes = [input_tensor(graph, operator, i).shape for i in range(len(operator.inputs))]
    first = shapes[0]
    if a.stacks:
        if any(shape != first for shape in shapes):
            raise ModelError(f"shapes {shapes} are not all equal")
        return ((*first[: a.axis], len(shapes), *first[a.axis :]),)
    around = {(shape[: a.axis], shape[a.axis + 1 :]) for shape in shapes}
    if len(around) != 1 or len({len(shape) for shape in shapes}) != 1:
        raise ModelError(f"shapes {shapes} differ in more than dimension {a.axis}")
    total = sum(shape[a.axis] for shape in shapes)
    return ((*first[: a.axis], total, *first[a.axis + 1 :]),)


def _signals(graph: Graph, operator: Operator, attributes: Signal) -> tuple[Shape, ...]:
    shapes = [input_tensor(graph, operator, i).shape for i in range(len(operator.inputs))]
    rule = SIGNAL_RULES.get(operator.kind)
    made = rule(attributes, shapes) if rule else (shapes[0],)
    return (*made, shapes[-1]) if attributes.keeps_state else made


def shapes_of(graph: Graph, operator: Operator) -> tuple[Shape, ...]:
    """The shapes of an operator's outputs: by its rule, or the shape of its first input.

    Raises ModelError where the inputs do not fit together.
    """
    if isinstance(operator.attributes, External):  # its backend has checked them
        return tuple(graph.tensors[number].shape for number in operator.outputs)
    if isinstance(operator.attributes, Signal):
        return _signals(graph, operator, operator.attributes)
    rule = SHAPE_RULES.get(operator.kind)
    return rule(graph, operator) if rule else (input_tensor(graph, operator, 0).shape,)


#: Kind -> rule, for operators whose output differs in shape from their first input.
SHAPE_RULES: Mapping[str, ShapeRule] = {
    **dict.fromkeys(
        ("CALL_TIR", "INPUT_ROWS", "MOVE", "POOL_AVERAGES", "POOL_SUMS", "SHIFT"), _as_declared
    ),
    **dict.fromkeys(
        (
            *("ADD", "ATAN2", "BITWISE_XOR", "DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD"),
            *("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR"),
            *("MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "POW", "PRELU", "RIGHT_SHIFT"),
            *("SQUARED_DIFFERENCE", "SUB"),
        ),
        _broadcast,
    ),
    **dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(
        (
            *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "FILL", "GATHER_ND"),
            *("MIRROR_PAD", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SLICE"),
            *("SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "STRIDED_SLICE"),
            *("TILE", "TRANSPOSE", "UNPACK"),
        ),
        _rearrange,
    ),
    **dict.fromkeys(
        (
            *("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"),
            "SUM",
        ),
        _reduced,
    ),
    **dict.fromkeys(("EXPAND_DIMS", "RESHAPE", "SQUEEZE"), _reshape),
    "ARG_MAX": _arg_extremum,
    "ARG_MIN": _arg_extremum,
    "BATCH_MATMUL": _batch_matmul,
    "CONCATENATION": _concatenation,
    "PACK": _concatenation,
    "DYNAMIC_UPDATE_SLICE": _update_slice,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "CONV_3D": _convolution_3d,
    "FULLY_CONNECTED": _fully_connected,
    "EMBEDDING_LOOKUP": _gather,
    "GATHER": _gather,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "ONE_HOT": _one_hot,
    "PAD": _pad,
    "PADV2": _pad,
    "RESIZE_BILINEAR": _resize,
    "SELECT": _select,
    "SELECT_V2": _select,
    "SVDF": _svdf,
    "TOPK_V2": _top_positions,
    "TRANSPOSE_CONV": _transpose_conv,
}
