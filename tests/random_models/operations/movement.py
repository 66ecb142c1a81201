"""Operators that move elements and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tflite_serializer import TensorSpec
from tflite_writer import ModelWriter

from random_models.draw import Draw, Scope, Shape
from random_models.operations.operation import (
    Operation,
    like,
    number,
    numbers,
    partner,
    word,
)
from random_models.recipe import Ref, Step

_MODES = {"REFLECT": 0, "SYMMETRIC": 1}


def _axis(step: Step, rank: int) -> int:
    axis = number(step, "axis")
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of rank {rank}")
    return axis


def _drawn_axis(draw: Draw, rank: int) -> int:
    return draw.between(-rank, rank - 1)


def _reshape(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    wanted, shape = numbers(step, "shape"), m.tensors[inputs[0]].shape
    left, rest = divmod(math.prod(shape), math.prod(d for d in wanted if d != -1))
    if rest or (-1 not in wanted and left != 1):
        raise ValueError(f"{shape} as {wanted}")
    constant = m.constant(np.array(wanted, np.int32))
    made = [left if d == -1 else d for d in wanted]
    return (like(m, "RESHAPE", [inputs[0], constant], made, ("ReshapeOptions", {})),)


def _propose_reshape(scope: Scope, x: Ref) -> Step:
    draw = scope.draw
    left, shape = math.prod(scope.spec(x).shape), []
    for _ in range(draw.between(0, 4)):
        factor = draw.one([f for f in range(1, left + 1) if left % f == 0])
        shape.append(factor)
        left //= factor
    shape.append(left)
    if draw.chance(0.3):
        shape[draw.between(0, len(shape) - 1)] = -1
    return Step("RESHAPE", (x,), {"shape": tuple(shape)})


def _shape(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    """RESHAPE to the shape of another tensor, which SHAPE tells."""
    x, other = (m.tensors[i] for i in inputs)
    if math.prod(x.shape) != math.prod(other.shape):
        raise ValueError(f"{x.shape} as {other.shape}")
    told = m.tensor((len(other.shape),), "int32")
    m.operator("SHAPE", [inputs[1]], [told], ("ShapeOptions", {"OutType": 2}))
    return (like(m, "RESHAPE", [inputs[0], told], other.shape, ("ReshapeOptions", {})),)


def _propose_shape(scope: Scope, x: Ref) -> Step:
    elements = math.prod(scope.spec(x).shape)
    other = scope.pick(lambda s: math.prod(s.shape) == elements)
    return Step("SHAPE", (x, other or x))


def _transpose(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    order, shape = numbers(step, "order"), m.tensors[inputs[0]].shape
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"order {order} of {shape}")
    constant = m.constant(np.array(order, np.int32))
    made = [shape[i] for i in order]
    return (like(m, "TRANSPOSE", [inputs[0], constant], made, ("TransposeOptions", {})),)


def _propose_transpose(scope: Scope, x: Ref) -> Step:
    rank = len(scope.spec(x).shape)
    order = tuple(int(i) for i in scope.draw.rng.permutation(rank))
    return Step("TRANSPOSE", (x,), {"order": order})


def _concatenation(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shapes = [m.tensors[i].shape for i in inputs]
    axis = _axis(step, len(shapes[0]))
    shape = list(shapes[0])
    shape[axis] = sum(s[axis] for s in shapes)
    for other in shapes:
        if [d for i, d in enumerate(other) if i != axis % len(other)] != [
            d for i, d in enumerate(shape) if i != axis % len(shape)
        ]:
            raise ValueError(f"shapes {shapes}")
    options = ("ConcatenationOptions", {"Axis": axis, "FusedActivationFunction": 0})
    return (like(m, "CONCATENATION", inputs, shape, options),)


def _propose_concatenation(scope: Scope, x: Ref) -> Step:
    draw, spec = scope.draw, scope.spec(x)
    axis = _drawn_axis(draw, len(spec.shape))
    operands = [x]
    for _ in range(draw.between(0, 3)):
        shape = list(spec.shape)
        shape[axis] = draw.between(1, 6)
        operands.append(partner(scope, x, tuple(shape), equal=True))
    order = draw.rng.permutation(len(operands))
    return Step("CONCATENATION", tuple(operands[i] for i in order), {"axis": axis})


def _parts(m: ModelWriter, x: int, shapes: Sequence[Shape]) -> list[int]:
    spec = m.tensors[x]
    return [m.tensor(shape, spec.dtype, spec.scales, spec.zero_points) for shape in shapes]


def _split(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, count = list(m.tensors[inputs[0]].shape), number(step, "count")
    axis = _axis(step, len(shape))
    if shape[axis] % count:
        raise ValueError(f"{shape} in {count} parts")
    shape[axis] //= count
    outputs = _parts(m, inputs[0], [tuple(shape)] * count)
    constant = m.constant(np.array(axis, np.int32))
    m.operator("SPLIT", [constant, inputs[0]], outputs, ("SplitOptions", {"NumSplits": count}))
    return tuple(outputs)


def _propose_split(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    axis = _drawn_axis(draw, len(shape))
    counts = [c for c in range(1, 6) if shape[axis] % c == 0]
    return Step("SPLIT", (x,), {"axis": axis, "count": draw.one(counts)})


def _split_v(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, sizes = list(m.tensors[inputs[0]].shape), numbers(step, "sizes")
    axis = _axis(step, len(shape))
    known = sum(s for s in sizes if s != -1)
    real_sizes = [shape[axis] - known if s == -1 else s for s in sizes]
    if sum(real_sizes) != shape[axis]:
        raise ValueError(f"{shape} in parts of {sizes}")
    shapes = [
        tuple(s if i == axis % len(shape) else d for i, d in enumerate(shape)) for s in real_sizes
    ]
    outputs = _parts(m, inputs[0], shapes)
    constants = [m.constant(np.array(sizes, np.int32)), m.constant(np.array(axis, np.int32))]
    options = ("SplitVOptions", {"NumSplits": len(sizes)})
    m.operator("SPLIT_V", [inputs[0], *constants], outputs, options)
    return tuple(outputs)


def _propose_split_v(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    axis = _drawn_axis(draw, len(shape))
    left, sizes = shape[axis], []
    while left > 1 and len(sizes) < 4 and draw.chance(0.7):
        sizes.append(draw.between(1, left - 1))
        left -= sizes[-1]
    sizes.append(left)
    if draw.chance(0.2):
        sizes[draw.between(0, len(sizes) - 1)] = -1
    return Step("SPLIT_V", (x,), {"axis": axis, "sizes": tuple(sizes)})


def _pack(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = list(m.tensors[inputs[0]].shape)
    if len({m.tensors[i].shape for i in inputs}) > 1:
        raise ValueError("different shapes")
    axis = _axis(step, len(shape) + 1)
    shape.insert(axis % (len(shape) + 1), len(inputs))
    options = ("PackOptions", {"ValuesCount": len(inputs), "Axis": axis})
    return (like(m, "PACK", inputs, shape, options),)


def _propose_pack(scope: Scope, x: Ref) -> Step:
    draw, spec = scope.draw, scope.spec(x)
    operands = [x]
    for _ in range(draw.between(0, 2)):
        operands.append(partner(scope, x, spec.shape, equal=True))
    return Step("PACK", tuple(operands), {"axis": _drawn_axis(draw, len(spec.shape) + 1)})


def _unpack(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = list(m.tensors[inputs[0]].shape)
    axis = _axis(step, len(shape))
    count = shape.pop(axis)
    if not shape:
        raise ValueError("scalars")
    outputs = _parts(m, inputs[0], [tuple(shape)] * count)
    m.operator("UNPACK", inputs, outputs, ("UnpackOptions", {"Num": count, "Axis": axis}))
    return tuple(outputs)


def _propose_unpack(scope: Scope, x: Ref) -> Step | None:
    shape = scope.spec(x).shape
    rank = len(shape)
    axes = [axis for axis in range(-rank, rank) if shape[axis] <= 6]
    return Step("UNPACK", (x,), {"axis": scope.draw.one(axes)}) if axes else None


def _slice(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = m.tensors[inputs[0]].shape
    begin, size = numbers(step, "begin"), numbers(step, "size")
    made = []
    for extent, b, s in zip(shape, begin, size, strict=True):
        made.append(extent - b if s == -1 else s)
        if b < 0 or made[-1] < 1 or b + made[-1] > extent:
            raise ValueError(f"{b}, {s} of {extent}")
    constants = [m.constant(np.array(v, np.int32)) for v in (begin, size)]
    return (like(m, "SLICE", [inputs[0], *constants], made, ("SliceOptions", {})),)


def _propose_slice(scope: Scope, x: Ref) -> Step:
    draw, begin, size = scope.draw, [], []
    for extent in scope.spec(x).shape:
        begin.append(draw.between(0, extent - 1) if draw.chance(0.6) else 0)
        left = extent - begin[-1]
        size.append(-1 if draw.chance(0.2) else draw.between(1, left))
    return Step("SLICE", (x,), {"begin": tuple(begin), "size": tuple(size)})


def _strided_slice(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = m.tensors[inputs[0]].shape
    begin, end, strides = (numbers(step, name) for name in ("begin", "end", "strides"))
    masks = {name: number(step, f"{name}_mask") for name in ("begin", "end", "shrink_axis")}
    keys: list[slice | int] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        if masks["shrink_axis"] >> i & 1:
            keys.append(b)
            continue
        first = None if masks["begin"] >> i & 1 else b
        last = None if masks["end"] >> i & 1 else e
        keys.append(slice(first, last, s))
    made = np.broadcast_to(np.int8(0), shape)[tuple(keys)].shape
    if not made:
        raise ValueError("a scalar")
    constants = [m.constant(np.array(v, np.int32)) for v in (begin, end, strides)]
    fields = {
        "BeginMask": masks["begin"],
        "EndMask": masks["end"],
        "ShrinkAxisMask": masks["shrink_axis"],
    }
    operands = [inputs[0], *constants]
    return (like(m, "STRIDED_SLICE", operands, made, ("StridedSliceOptions", fields)),)


def _propose_strided_slice(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    begin, end, strides = [], [], []
    # The reference writes nothing where it is to take one element backwards.
    shrinks = draw.between(0, 2 ** len(shape) - 2) if draw.chance(0.2) else 0
    for axis, extent in enumerate(shape):
        b = draw.between(0, extent - 1)
        e = draw.between(b + 1, extent)
        s = 1 if draw.chance(0.6) else draw.between(1, 3)
        if draw.chance(0.15) and not shrinks >> axis & 1:  # backwards
            b, e, s = e - 1, b - 1 if b else -extent - 1, -s
        elif draw.chance(0.2):  # counted from behind
            b, e = b - extent, (e - extent) or extent
        begin.append(b)
        end.append(e)
        strides.append(s)
    attributes = {
        "begin": tuple(begin),
        "end": tuple(end),
        "strides": tuple(strides),
        "begin_mask": draw.between(0, 2 ** len(shape) - 1) if draw.chance(0.4) else 0,
        "end_mask": draw.between(0, 2 ** len(shape) - 1) if draw.chance(0.4) else 0,
        "shrink_axis_mask": shrinks,
    }
    return Step("STRIDED_SLICE", (x,), attributes)


def _squeeze(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, axes = m.tensors[inputs[0]].shape, numbers(step, "axes")
    dropped = {a % len(shape) for a in axes} or {i for i, d in enumerate(shape) if d == 1}
    made = [d for i, d in enumerate(shape) if i not in dropped]
    if any(shape[i] != 1 for i in dropped) or not made or not dropped:
        raise ValueError(f"axes {axes} of {shape}")
    return (like(m, "SQUEEZE", inputs, made, ("SqueezeOptions", {"SqueezeDims": axes})),)


def _propose_squeeze(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    ones = [i for i, d in enumerate(shape) if d == 1]
    axes = [i if draw.chance(0.7) else i - len(shape) for i in ones if draw.chance(0.7)]
    return Step("SQUEEZE", (x,), {"axes": tuple(axes)})


def _has_ones(spec: TensorSpec) -> bool:
    return 1 in spec.shape and max(spec.shape) > 1


def _with_ones(draw: Draw) -> Shape:
    shape = list(draw.shape(draw.between(2, 5)))
    shape[draw.between(0, len(shape) - 1)] = 1
    shape[draw.between(0, len(shape) - 1)] = 3
    return tuple(shape) if 1 in shape else (1, *shape[1:])


def _expand_dims(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = list(m.tensors[inputs[0]].shape)
    axis = _axis(step, len(shape) + 1)
    shape.insert(axis % (len(shape) + 1), 1)
    constant = m.constant(np.array([axis], np.int32))
    return (like(m, "EXPAND_DIMS", [inputs[0], constant], shape, ("ExpandDimsOptions", {})),)


def _propose_expand_dims(scope: Scope, x: Ref) -> Step:
    return Step(
        "EXPAND_DIMS", (x,), {"axis": _drawn_axis(scope.draw, len(scope.spec(x).shape) + 1)}
    )


def _gather(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, indices = m.tensors[inputs[0]].shape, numbers(step, "indices")
    axis = _axis(step, len(shape))
    if not indices or not all(0 <= i < shape[axis] for i in indices):
        raise ValueError(f"indices {indices} of {shape[axis]}")
    at = axis % len(shape)
    made = (*shape[:at], len(indices), *shape[at + 1 :])
    constant = m.constant(np.array(indices, np.int32))
    options = ("GatherOptions", {"Axis": axis, "BatchDims": 0})
    return (like(m, "GATHER", [inputs[0], constant], made, options),)


def _propose_gather(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    axis = _drawn_axis(draw, len(shape))
    indices = tuple(draw.between(0, shape[axis] - 1) for _ in range(draw.between(1, 6)))
    return Step("GATHER", (x,), {"axis": axis, "indices": indices})


def _paddings(step: Step, rank: int) -> np.ndarray:
    before, after = numbers(step, "before"), numbers(step, "after")
    if len(before) != rank or len(after) != rank or min(*before, *after) < 0:
        raise ValueError(f"paddings {before}, {after}")
    return np.array([before, after], np.int32).T


def _pad(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    paddings = _paddings(step, len(x.shape))
    shape = [int(d + p.sum()) for d, p in zip(x.shape, paddings, strict=True)]
    operands = [inputs[0], m.constant(paddings)]
    if step.kind == "PADV2":
        if x.dtype == "uint8" and number(step, "value") < 0:
            raise ValueError("a negative value of uint8")
        value = np.array([number(step, "value")], x.dtype)
        operands.append(m.constant(value, x.scales, x.zero_points[0]))
        return (like(m, "PADV2", operands, shape, ("PadV2Options", {})),)
    if step.kind == "MIRROR_PAD":
        mode = _MODES[word(step, "mode")]
        most = np.array(x.shape) - (1 if mode == 0 else 0)
        if (paddings > most[:, None]).any():
            raise ValueError(f"mirrors of {paddings.tolist()} around {x.shape}")
        return (like(m, "MIRROR_PAD", operands, shape, ("MirrorPadOptions", {"Mode": mode})),)
    return (like(m, "PAD", operands, shape, ("PadOptions", {})),)


def _proposed_pad(kind: str):
    def propose(scope: Scope, x: Ref) -> Step:
        draw, spec = scope.draw, scope.spec(x)
        mode = draw.one(tuple(_MODES))
        sides = []
        for _ in range(2):
            most = [
                3 if kind != "MIRROR_PAD" else min(3, d - (mode == "REFLECT")) for d in spec.shape
            ]
            sides.append(tuple(0 if draw.chance(0.5) else draw.between(0, m) for m in most))
        attributes: dict = {"before": sides[0], "after": sides[1]}
        if kind == "PADV2":
            attributes["value"] = draw.zero_point()
        if kind == "MIRROR_PAD":
            attributes["mode"] = mode
        return Step(kind, (x,), attributes)

    return propose


def _up_to(rank: int):
    return lambda spec: len(spec.shape) <= rank


def _below(rank: int):
    return lambda draw: draw.shape(draw.between(1, rank))


OPERATIONS = {
    "RESHAPE": Operation(_reshape, _propose_reshape),
    "SHAPE": Operation(_shape, _propose_shape),
    "TRANSPOSE": Operation(_transpose, _propose_transpose),
    "CONCATENATION": Operation(_concatenation, _propose_concatenation),
    "SPLIT": Operation(_split, _propose_split),
    "SPLIT_V": Operation(_split_v, _propose_split_v),
    "PACK": Operation(_pack, _propose_pack, _up_to(4), _below(4)),
    "UNPACK": Operation(
        _unpack,
        _propose_unpack,
        lambda spec: len(spec.shape) > 1 and min(spec.shape) <= 6,
        lambda draw: (draw.between(1, 4), *draw.shape(draw.between(1, 3))),
    ),
    "SLICE": Operation(_slice, _propose_slice),
    "STRIDED_SLICE": Operation(_strided_slice, _propose_strided_slice),
    "SQUEEZE": Operation(_squeeze, _propose_squeeze, _has_ones, _with_ones),
    "EXPAND_DIMS": Operation(_expand_dims, _propose_expand_dims, _up_to(4), _below(4)),
    "GATHER": Operation(_gather, _propose_gather),
    "PAD": Operation(_pad, _proposed_pad("PAD")),
    "PADV2": Operation(_pad, _proposed_pad("PADV2")),
    "MIRROR_PAD": Operation(_pad, _proposed_pad("MIRROR_PAD")),
}
