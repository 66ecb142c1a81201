"""Operators that repeat, reverse, pick or mark elements, or cut images into blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tflite_writer import ModelWriter

from random_models.draw import MAX_ELEMENTS, Draw, Scope, Shape
from random_models.operations.operation import Operation, like, number, numbers, partner, word
from random_models.recipe import Ref, Step

_RANKS = (3, 4)


def _constants(m: ModelWriter, *values: object) -> list[int]:
    return [m.constant(np.array(value, np.int32)) for value in values]


def _tile(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, times = m.tensors[inputs[0]].shape, numbers(step, "times")
    made = [d * t for d, t in zip(shape, times, strict=True)]
    return (like(m, "TILE", [inputs[0], *_constants(m, times)], made, ("TileOptions", {})),)


def _propose_tile(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    times = [1] * len(shape)
    for _ in range(draw.between(0, 2)):
        times[draw.between(0, len(shape) - 1)] = draw.between(1, 3)
    return Step("TILE", (x,), {"times": tuple(times)})


def _broadcast(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, made = m.tensors[inputs[0]].shape, numbers(step, "shape")
    if np.broadcast_shapes(shape, made) != made:
        raise ValueError(f"{shape} to {made}")
    constants = _constants(m, made)
    options = ("BroadcastToOptions", {})
    return (like(m, "BROADCAST_TO", [inputs[0], *constants], made, options),)


def _fill(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    """FILL with the first element of its input."""
    x, made = m.tensors[inputs[0]], numbers(step, "shape")
    quantization = (x.scales or None, x.zero_points or 0)
    first, rank = m.tensor((), x.dtype, *quantization), len(x.shape)
    masks = {f"{name}Mask": 0 for name in ("Begin", "End", "Ellipsis", "NewAxis")}
    options = ("StridedSliceOptions", {**masks, "ShrinkAxisMask": (1 << rank) - 1})
    bounds = _constants(m, [0] * rank, [1] * rank, [1] * rank)
    m.operator("STRIDED_SLICE", [inputs[0], *bounds], [first], options)
    out = m.tensor(made, x.dtype, *quantization)
    m.operator("FILL", [*_constants(m, made), first], [out], ("FillOptions", {}))
    return (out,)


def _propose_fill(scope: Scope, x: Ref) -> Step:
    return Step("FILL", (x,), {"shape": scope.draw.shape()})


def _propose_broadcast(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    made = [draw.between(1, 4) if d == 1 else d for d in shape]
    if len(made) < 5 and draw.chance(0.4):
        made.insert(0, draw.between(1, 3))
    return Step("BROADCAST_TO", (x,), {"shape": tuple(made)})


def _reverse(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, axes = m.tensors[inputs[0]].shape, numbers(step, "axes")
    if not axes or not all(-len(shape) <= a < len(shape) for a in axes):
        raise ValueError(f"axes {axes} of {shape}")
    constants = _constants(m, axes)
    return (like(m, "REVERSE_V2", [inputs[0], *constants], shape, ("ReverseV2Options", {})),)


def _propose_reverse(scope: Scope, x: Ref) -> Step:
    rank = len(scope.spec(x).shape)
    return Step("REVERSE_V2", (x,), {"axes": (scope.draw.between(-rank, rank - 1),)})


def _gather_nd(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, depth = m.tensors[inputs[0]].shape, int(step.attributes["depth"])  # type: ignore[arg-type]
    rows = int(step.attributes["rows"])  # type: ignore[arg-type]
    if not 1 <= depth <= len(shape) or rows < 1:
        raise ValueError(f"{rows} places of {depth} numbers in {shape}")
    places = np.random.default_rng(step.seed).integers(0, shape[:depth], (rows, depth))
    operands = [inputs[0], *_constants(m, places)]
    made = (rows, *shape[depth:])
    return (like(m, "GATHER_ND", operands, made, ("GatherNdOptions", {})),)


def _propose_gather_nd(scope: Scope, x: Ref) -> Step:
    draw, rank = scope.draw, len(scope.spec(x).shape)
    attributes = {"depth": draw.between(1, rank), "rows": draw.between(1, 5)}
    return Step("GATHER_ND", (x,), attributes, draw.seed())


def _update(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, part = m.tensors[inputs[0]].shape, m.tensors[inputs[1]].shape
    if len(part) != len(shape) or any(a > b for a, b in zip(part, shape, strict=True)):
        raise ValueError(f"{part} in {shape}")
    # Some places from which the part would reach outside.
    drawn = np.random.default_rng(step.seed).integers(-2, np.array(shape) + 2)
    starts = inputs[2:] or _constants(m, drawn)
    options = ("DynamicUpdateSliceOptions", {})
    return (like(m, "DYNAMIC_UPDATE_SLICE", [*inputs[:2], *starts], shape, options),)


def _propose_update(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    part = tuple(draw.between(1, extent) if draw.chance(0.5) else extent for extent in shape)
    operands = [x, partner(scope, x, part, equal=True)]
    if draw.chance(0.5):
        operands.append(scope.input((len(shape),), "int32"))
    return Step("DYNAMIC_UPDATE_SLICE", tuple(operands), {}, draw.seed())


def _positions(m: ModelWriter, x: int) -> int:
    """Where the largest elements of rows are, by ARG_MAX."""
    shape = m.tensors[x].shape
    most = m.tensor(shape[:-1], "int32")
    axis = _constants(m, len(shape) - 1)
    m.operator("ARG_MAX", [x, *axis], [most], ("ArgMaxOptions", {"OutputType": 2}))
    return most


def _embedding(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    """Rows of a table, by where the largest elements of rows are."""
    count, extent = m.tensors[inputs[0]].shape
    most = _positions(m, inputs[0])
    width = int(step.attributes["width"])  # type: ignore[arg-type]
    data = np.random.default_rng(step.seed).integers(-128, 128, (extent, width)).astype(np.int8)
    rows = m.tensor((count, width), "int8", 0.05, -3)
    m.operator("EMBEDDING_LOOKUP", [most, m.constant(data, 0.05, -3)], [rows])
    return (rows,)


def _propose_embedding(scope: Scope, x: Ref) -> Step:
    draw = scope.draw
    return Step("EMBEDDING_LOOKUP", (x,), {"width": draw.between(1, 20)}, draw.seed())


def _one_hot(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    """Marks where the largest elements of rows are, if that is below the depth."""
    most, axis, depth = _positions(m, inputs[0]), number(step, "axis"), number(step, "depth")
    shape, dtype = list(m.tensors[most].shape), word(step, "dtype")
    if not -1 <= axis <= len(shape) or depth < 1:
        raise ValueError(f"axis {axis} of depth {depth} in {shape}")
    shape.insert(len(shape) if axis == -1 else axis, depth)
    drawn = np.random.default_rng(step.seed).permutation(4) - (0 if dtype == "uint8" else 2)
    on, off = (m.constant(value.astype(dtype)) for value in drawn[:2])
    options = ("OneHotOptions", {"Axis": axis})
    operands = [most, *_constants(m, depth), on, off]
    scale = 0.05 if dtype in ("int8", "uint8") else None
    return (m.node("ONE_HOT", operands, shape, options, scale=scale, dtype=dtype),)


def _propose_one_hot(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    axis, depth = draw.between(-1, len(shape) - 1), draw.between(1, shape[-1] + 2)
    dtype = draw.one(("int8", "int8", "uint8", "int32", "int64", "bool"))
    attributes = {"axis": axis, "depth": depth, "dtype": dtype}
    return Step("ONE_HOT", (x,), attributes, draw.seed())


def _top(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x, count = m.tensors[inputs[0]], number(step, "count")
    if not 1 <= count <= x.shape[-1]:
        raise ValueError(f"{count} of {x.shape}")
    shape = (*x.shape[:-1], count)
    values = m.tensor(shape, x.dtype, x.scales or None, x.zero_points or 0)
    positions = m.tensor(shape, "int32")
    operands = [inputs[0], *_constants(m, count)]
    m.operator("TOPK_V2", operands, [values, positions], ("TopKV2Options", {}))
    return values, positions


def _propose_top(scope: Scope, x: Ref) -> Step:
    extent = scope.spec(x).shape[-1]
    return Step("TOPK_V2", (x,), {"count": scope.draw.between(1, min(extent, 9))})


def _margins(step: Step) -> list[list[int]]:
    pairs = zip(numbers(step, "before"), numbers(step, "after"), strict=True)
    return [[before, after] for before, after in pairs]


def _cut(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, blocks, margins = m.tensors[inputs[0]].shape, numbers(step, "blocks"), _margins(step)
    parts = []
    for extent, block, margin in zip(shape[1:-1], blocks, margins, strict=True):
        part, rest = divmod(extent + sum(margin), block)
        if rest or min(margin) < 0:
            raise ValueError(f"blocks of {blocks} in {shape} with {margins} around")
        parts.append(part)
    made = (shape[0] * math.prod(blocks), *parts, shape[-1])
    operands = [inputs[0], *_constants(m, blocks, margins)]
    return (like(m, step.kind, operands, made, ("SpaceToBatchNDOptions", {})),)


def _propose_cut(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    blocks, before, after = [], [], []
    for extent in shape[1:-1]:
        block = draw.between(1, 3)
        first = draw.between(0, 2) if draw.chance(0.4) else 0
        blocks.append(block)
        before.append(first)
        after.append(-(extent + first) % block)
    attributes = {"blocks": tuple(blocks), "before": tuple(before), "after": tuple(after)}
    return Step("SPACE_TO_BATCH_ND", (x,), attributes)


def _join(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, blocks, margins = m.tensors[inputs[0]].shape, numbers(step, "blocks"), _margins(step)
    count, rest = divmod(shape[0], math.prod(blocks))
    if rest:
        raise ValueError(f"blocks of {blocks} of {shape[0]} images")
    whole = [
        extent * block - sum(margin)
        for extent, block, margin in zip(shape[1:-1], blocks, margins, strict=True)
    ]
    operands = [inputs[0], *_constants(m, blocks, margins)]
    made = (count, *whole, shape[-1])
    return (like(m, step.kind, operands, made, ("BatchToSpaceNDOptions", {})),)


def _propose_join(scope: Scope, x: Ref) -> Step:
    draw, (count, *extents, _) = scope.draw, scope.spec(x).shape
    blocks, before, after = [], [], []
    for extent in extents:
        block = draw.one([b for b in (1, 2, 3) if count % b == 0])
        count //= block
        first = draw.between(0, 1) if draw.chance(0.4) and extent * block > 2 else 0
        blocks.append(block)
        before.append(first)
        after.append(1 - first if extent * block > 2 and draw.chance(0.3) else 0)
    attributes = {"blocks": tuple(blocks), "before": tuple(before), "after": tuple(after)}
    return Step("BATCH_TO_SPACE_ND", (x,), attributes)


def _images(draw: Draw) -> Shape:
    """Some images of one or two dimensions and channels."""
    rank = draw.one(_RANKS)
    while True:
        extents = [draw.extent(8) for _ in range(rank - 2)]
        shape = (draw.one((1, 2, 4, 6, 12)), *extents, draw.between(1, 12))
        if math.prod(shape) <= MAX_ELEMENTS // 8:
            return shape


OPERATIONS = {
    "TILE": Operation(_tile, _propose_tile),
    "BROADCAST_TO": Operation(
        _broadcast,
        _propose_broadcast,
        lambda spec: 1 in spec.shape,
        lambda draw: (*draw.shape(draw.between(1, 3)), 1),
    ),
    "FILL": Operation(_fill, _propose_fill, lambda spec: len(spec.shape) > 0),
    "REVERSE_V2": Operation(_reverse, _propose_reverse),
    "EMBEDDING_LOOKUP": Operation(
        _embedding,
        _propose_embedding,
        lambda spec: len(spec.shape) == 2 and spec.dtype == "int8",
        lambda draw: draw.shape(2),
    ),
    "ONE_HOT": Operation(
        _one_hot,
        _propose_one_hot,
        lambda spec: len(spec.shape) > 1 and spec.dtype == "int8",
        lambda draw: draw.shape(draw.between(2, 4)),
    ),
    "TOPK_V2": Operation(
        _top,
        _propose_top,
        lambda spec: len(spec.shape) > 0,
        lambda draw: draw.shape(draw.between(1, 4)),
    ),
    "DYNAMIC_UPDATE_SLICE": Operation(
        _update, _propose_update, lambda spec: len(spec.shape) > 0, lambda draw: draw.shape(3)
    ),
    "GATHER_ND": Operation(_gather_nd, _propose_gather_nd),
    "SPACE_TO_BATCH_ND": Operation(
        _cut, _propose_cut, lambda spec: len(spec.shape) in _RANKS, _images
    ),
    "BATCH_TO_SPACE_ND": Operation(
        _join, _propose_join, lambda spec: len(spec.shape) in _RANKS, _images
    ),
}
