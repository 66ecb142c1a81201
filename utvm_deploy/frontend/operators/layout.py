"""Importing operators that move elements; each mover of one tensor becomes a Rearrange.

SPLIT, SPLIT_V and UNPACK become one operator for each output, so that unused outputs cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import (
    COMPUTED,
    EQUAL,
    EQUALS,
    MOVED,
    MOVED_OR_TRUE,
    SupportedOperator,
)
from utvm_deploy.frontend.operators.operands import (
    alike,
    axis_of,
    clamp_of,
    made,
    movable,
    parameter,
    scalar_parameter,
    scale_of,
    zero_point_of,
)
from utvm_deploy.graph.attribute_values import Indices, Shape
from utvm_deploy.graph.attributes import Concatenation, Pad, Rearrange, Reshape
from utvm_deploy.graph.model import Operator, Tensor

_PADDED = (*COMPUTED, "float32")
_REFLECT, _SYMMETRIC = 0, 1  # the schema's MirrorPadMode


def import_reshape(op: SourceOperator) -> Operator:
    """RESHAPE, by its second input if that is there, else by what the file says of its output."""
    _, out = ends(op)
    if op.has_input(1):
        shape = parameter(op, 1, "shape").reshape(-1)
        # -1 stands for the rest, at most once; the number of elements decides it.
        fits = len(shape) == len(out.shape) and all(
            said in (-1, is_) for said, is_ in zip(shape, out.shape, strict=True)
        )
        if not fits or np.count_nonzero(shape == -1) > 1:
            raise op.damaged(f"it reshapes to {shape.tolist()}, but its output is {out.shape}")
    return made(op, op.inputs[:1], Reshape())


def import_squeeze(op: SourceOperator) -> Operator:
    """SQUEEZE, whose axes show in its output's shape."""
    x, out = ends(op)
    if [d for d in x.shape if d != 1] != [d for d in out.shape if d != 1]:
        raise op.damaged(f"it squeezes {x.shape} to {out.shape}")
    return made(op, op.inputs[:1], Reshape())


def import_expand_dims(op: SourceOperator) -> Operator:
    """EXPAND_DIMS by one dimension of 1."""
    x, out = ends(op)
    axis = axis_of(op, scalar_parameter(op, 1, "axis"), len(x.shape) + 1)
    if out.shape != (*x.shape[:axis], 1, *x.shape[axis:]):
        raise op.damaged(f"it makes {out.shape} of {x.shape} with a new dimension {axis}")
    return made(op, op.inputs[:1], Reshape())


def import_pad(op: SourceOperator) -> Operator:
    """PAD and PADV2; PADV2's value is a constant of the input's quantization."""
    x, out = op.input(0), op.output()
    if x.dtype == "float32":
        _same_type(op, x, out)
    else:
        alike(op, x, out)
        if (zero_point_of(x), scale_of(x)) != (zero_point_of(out), scale_of(out)):
            raise op.unsupported(
                "its input and output are quantized differently; they must be equal"
            )
    value: float | None = None
    if op.kind == "PADV2":
        constant = op.input(2)
        if constant.data is None or constant.dtype != x.dtype or constant.data.size != 1:
            raise op.unsupported(f"its value '{constant.name}' must be one constant {x.dtype}")
        value = constant.data.reshape(-1)[0].item()
    return made(op, op.inputs[:1], Pad(_paddings(op, x), value))


def import_mirror_pad(op: SourceOperator) -> Operator:
    """MIRROR_PAD: every border element is one of the input's."""
    x, _ = ends(op)
    mode = op.integer("Mode")
    if mode not in (_REFLECT, _SYMMETRIC):
        raise op.damaged(f"its mode {mode} is neither REFLECT (0) nor SYMMETRIC (1)")
    indices: list[Indices] = []
    for size, (before, after) in zip(x.shape, _paddings(op, x), strict=True):
        most = size - 1 if mode == _REFLECT else size
        if max(before, after) > most:
            raise op.damaged(f"its paddings exceed {most}, the most for {size} elements")
        skipped = 1 if mode == _REFLECT else 0
        left = [before - i - 1 + skipped for i in range(before)]
        right = [size - 1 - skipped - i for i in range(after)]
        indices.append(tuple(left + list(range(size)) + right))
    return taken(op, x, indices)


def import_transpose(op: SourceOperator) -> Operator:
    """TRANSPOSE by a constant permutation."""
    x, _ = ends(op)
    order = [int(axis) for axis in parameter(op, 1, "permutation").reshape(-1)]
    if len(order) != len(x.shape):
        raise op.damaged(f"its permutation {order} is not one of {len(x.shape)} dimensions")
    order = [axis_of(op, axis, len(x.shape)) for axis in order]
    if len(set(order)) != len(order):
        raise op.damaged(f"its permutation {order} names a dimension twice")
    return arranged(op, x.shape, order, tuple(x.shape[axis] for axis in order))


def import_slice(op: SourceOperator) -> Operator:
    """SLICE by a constant begin and size; a size of -1 takes the rest."""
    x, _ = ends(op)
    begins, sizes = (parameter(op, i, n).reshape(-1) for i, n in ((1, "begin"), (2, "size")))
    if not len(begins) == len(sizes) == len(x.shape):
        raise op.damaged(f"its begin and size do not have {len(x.shape)} numbers")
    indices: list[Indices] = []
    for extent, begin, size in zip(x.shape, begins.tolist(), sizes.tolist(), strict=True):
        size = extent - begin if size == -1 else size
        if not (0 <= begin < extent and 1 <= size <= extent - begin):
            raise op.damaged(f"it takes {size} elements from {begin} of a dimension of {extent}")
        indices.append(tuple(range(begin, begin + size)))
    return taken(op, x, indices)


def import_strided_slice(op: SourceOperator) -> Operator:
    """STRIDED_SLICE with constant bounds and all of its masks."""
    x, _ = ends(op)
    begin, end, strides = (
        parameter(op, i, name).reshape(-1).tolist()
        for i, name in ((1, "begin"), (2, "end"), (3, "strides"))
    )
    if op.options.get("Offset"):
        raise op.unsupported("its ends are offsets from its begins; only positions are supported")
    indices, shape = strided_selection(op, x.shape, (begin, end, strides))
    return taken(op, x, indices, shape)


def strided_selection(
    op: SourceOperator, shape: Shape, bounds: tuple[Sequence[int], Sequence[int], Sequence[int]]
) -> tuple[list[Indices], Shape]:
    """What a strided slice takes of every dimension, and the shape that its masks leave."""
    begin, end, strides = bounds
    if not len(begin) == len(end) == len(strides):
        raise op.damaged("its begin, end and strides have different lengths")
    masks = {name: op.integer(f"{name}Mask") for name in _MASKS}

    def marked(name: str, position: int) -> bool:
        return bool(masks[name] >> position & 1)

    spec = range(len(begin))
    ellipses = [i for i in spec if marked("Ellipsis", i)]
    if len(ellipses) > 1:
        raise op.damaged("it has more than one ellipsis")
    consuming = [i for i in spec if i not in ellipses and not marked("NewAxis", i)]
    left = len(shape) - len(consuming)
    if left < 0:
        raise op.damaged(f"it slices {len(consuming)} dimensions of {shape}")
    if not ellipses:
        ellipses = [len(begin)]
    indices: list[Indices] = []
    result: list[int] = []
    for position in range(max(len(begin), ellipses[0] + 1)):
        if position == ellipses[0]:
            for extent in shape[len(indices) : len(indices) + left]:
                indices.append(tuple(range(extent)))
                result.append(extent)
            continue
        if marked("NewAxis", position):
            result.append(1)
            continue
        extent, step = shape[len(indices)], strides[position]
        if step == 0:
            raise op.damaged("it has a stride of 0")
        if marked("ShrinkAxis", position):
            at = begin[position] + (extent if begin[position] < 0 else 0)
            if marked("Begin", position):
                at = 0
            if step < 0:  # the reference then writes nothing at all
                raise op.damaged(
                    f"it takes one element of dimension {len(indices)} by the stride {step}"
                )
            if not 0 <= at < extent:
                raise op.damaged(f"it takes element {at} of a dimension of {extent}")
            indices.append((at,))
            continue
        first = None if marked("Begin", position) else begin[position]
        last = None if marked("End", position) else end[position]
        taken = tuple(range(extent)[first:last:step])
        if not taken:
            raise op.unsupported(f"it takes nothing of dimension {len(indices)}")
        indices.append(taken)
        result.append(len(taken))
    return indices, tuple(result)


_MASKS = ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")


def import_tile(op: SourceOperator) -> Operator:
    """TILE by constant numbers of times."""
    x, _ = ends(op)
    times = parameter(op, 1, "multiples").reshape(-1).tolist()
    if len(times) != len(x.shape) or min(times) < 1:
        raise op.damaged(f"it repeats {x.shape} {times} times")
    check_positions(op, [d * count for d, count in zip(x.shape, times, strict=True)])
    indices = [tuple(range(d)) * count for d, count in zip(x.shape, times, strict=True)]
    return taken(op, x, indices)


def import_broadcast_to(op: SourceOperator) -> Operator:
    """BROADCAST_TO a constant shape."""
    x, _ = ends(op)
    shape = tuple(parameter(op, 1, "shape").reshape(-1).tolist())
    view = (*(1,) * (len(shape) - len(x.shape)), *x.shape)
    fits = len(view) == len(shape) and all(
        one in (1, other) and other > 0 for one, other in zip(view, shape, strict=True)
    )
    if not fits:
        raise op.damaged(f"{x.shape} cannot be broadcast to {shape}")
    check_positions(op, shape)
    indices = tuple(
        tuple(range(d)) if d == one else (0,) * d for one, d in zip(view, shape, strict=True)
    )
    return made(op, op.inputs[:1], Rearrange(view, indices, tuple(range(len(view))), shape))


def import_fill(op: SourceOperator) -> Operator:
    """FILL a constant shape with one value; with a constant one, a small result is a constant."""
    value, out = movable(op, op.input(1)), movable(op, op.output())
    _same_type(op, value, out)
    if value.shape or value.quantization != out.quantization:
        raise op.damaged(f"its value '{value.name}' is none of '{out.name}'")
    shape = tuple(parameter(op, 0, "dimensions").reshape(-1).tolist())
    check_positions(op, shape)
    indices = tuple((0,) * extent for extent in shape)
    a = Rearrange((1,) * len(shape), indices, tuple(range(len(shape))), shape)
    return made(op, op.inputs[1:2], a)


def check_positions(op: SourceOperator, shape: Sequence[int]) -> None:
    """Before a number is made for every position: a damaged file may ask for any number."""
    if tuple(shape) != op.output().shape:
        raise op.damaged(f"it makes {tuple(shape)}, but the file says {op.output().shape}")


def import_reverse(op: SourceOperator) -> Operator:
    """REVERSE_V2 along constant axes."""
    x, _ = ends(op)
    axes = {axis_of(op, int(a), len(x.shape)) for a in parameter(op, 1, "axes").reshape(-1)}
    if axes and max(axes) - min(axes) >= len(axes):
        raise op.unsupported(f"its axes {sorted(axes)} are not side by side")
    indices = [
        tuple(range(d - 1, -1, -1) if axis in axes else range(d)) for axis, d in enumerate(x.shape)
    ]
    return taken(op, x, indices)


def import_resize_nearest_neighbor(op: SourceOperator) -> Operator:
    """RESIZE_NEAREST_NEIGHBOR of an NHWC image to a constant size."""
    x = image(op)
    size = parameter(op, 1, "size").reshape(-1)
    if size.size != 2 or (size < 1).any():
        raise op.damaged(f"its size {size.tolist()} is not rows and columns")
    if tuple(size.tolist()) != op.output().shape[1:3]:
        raise op.damaged(f"its size is {size.tolist()}, but its output is {op.output().shape}")
    corners, centers = bool(op.option("AlignCorners")), bool(op.option("HalfPixelCenters"))
    indices: list[Indices] = [tuple(range(d)) for d in x.shape]
    for axis, count in zip((1, 2), size.tolist(), strict=True):
        indices[axis] = _nearest(x.shape[axis], count, corners, centers)
    return taken(op, x, indices)


def _nearest(size: int, count: int, corners: bool, centers: bool) -> Indices:
    """The input row of each output row, in float32 as the reference computes it."""
    whole, parts = (size - 1, count - 1) if corners and count > 1 else (size, count)
    scale = np.float32(whole) / np.float32(parts)
    exact = (np.arange(count, dtype=np.float32) + np.float32(0.5 if centers else 0)) * scale
    nearest = np.floor(exact + np.float32(0.5)) if corners else np.floor(exact)
    return tuple(np.clip(nearest, 0, size - 1).astype(np.int64).tolist())


def import_split(op: SourceOperator) -> tuple[Operator, ...]:
    """SPLIT into equal parts."""
    x = op.input(1)
    axis = axis_of(op, scalar_parameter(op, 0, "axis"), len(x.shape))
    count = len(op.outputs)
    if count == 0 or x.shape[axis] % count or op.integer("NumSplits") != count:
        raise op.damaged(f"it splits {x.shape} along {axis} into {count} parts")
    return _parts(op, 1, axis, [x.shape[axis] // count] * count)


def import_split_v(op: SourceOperator) -> tuple[Operator, ...]:
    """SPLIT_V into parts of constant sizes, one of which may be -1: the rest."""
    x = op.input(0)
    axis = axis_of(op, scalar_parameter(op, 2, "axis"), len(x.shape))
    sizes = [int(s) for s in parameter(op, 1, "sizes").reshape(-1)]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(sizes) - 1
    if any(s < 1 for s in sizes) or sum(sizes) != x.shape[axis] or len(sizes) != len(op.outputs):
        raise op.damaged(f"it splits {x.shape} along {axis} into parts of {sizes}")
    return _parts(op, 0, axis, sizes)


def import_unpack(op: SourceOperator) -> tuple[Operator, ...]:
    """UNPACK: every slice along a dimension, without that dimension."""
    x = op.input(0)
    axis = axis_of(op, op.integer("Axis"), len(x.shape))
    if len(op.outputs) != x.shape[axis]:
        raise op.damaged(f"it unpacks {x.shape} along {axis} into {len(op.outputs)} parts")
    return _parts(op, 0, axis, [1] * x.shape[axis], keeps=False)


def import_concatenation(op: SourceOperator) -> Operator:
    """CONCATENATION of tensors of the same quantization, and PACK, which does not look at it."""
    out = movable(op, op.output())
    xs = [movable(op, op.input(i)) for i in range(len(op.inputs))]
    if not xs:
        raise op.damaged("it joins nothing")
    for x in xs:
        _same_type(op, x, out)
    if op.kind == "PACK":
        axis = axis_of(op, op.integer("Axis"), len(xs[0].shape) + 1)
        return made(op, op.inputs, Concatenation(axis, stacks=True))
    if out.quantization is None:
        has_activation = op.integer("FusedActivationFunction") != 0
    else:
        has_activation = clamp_of(op, out) != clamp_of(op, out, number=0)
    if has_activation:
        raise op.unsupported("it has a fused activation; only NONE is supported")
    if any(x.quantization != out.quantization for x in xs):
        raise op.unsupported(
            "its inputs and output are quantized differently; they must be equal: "
            "convert the model again with a current TensorFlow"
        )
    return made(op, op.inputs, Concatenation(axis_of(op, op.integer("Axis"), len(out.shape))))


def ends(op: SourceOperator) -> tuple[Tensor, Tensor]:
    """Input and output, which must have the same element type."""
    x, out = movable(op, op.input(0)), movable(op, op.output())
    _same_type(op, x, out)
    return x, out


def _same_type(op: SourceOperator, x: Tensor, out: Tensor) -> None:
    if x.dtype != out.dtype:
        raise op.damaged(f"it makes {out.dtype} of '{x.name}', which is {x.dtype}")


def image(op: SourceOperator) -> Tensor:
    """The input, if it is a batch of images, of the output's type."""
    x, _ = ends(op)
    if len(x.shape) != 4:
        raise op.unsupported(f"'{x.name}' has shape {x.shape}; only 4 dimensions are supported")
    return x


def _paddings(op: SourceOperator, x: Tensor) -> tuple[tuple[int, int], ...]:
    paddings = parameter(op, 1, "paddings")
    if paddings.shape != (len(x.shape), 2):
        raise op.damaged(f"its paddings have shape {paddings.shape} for an input {x.shape}")
    if (paddings < 0).any():
        raise op.damaged(f"its paddings {paddings.tolist()} must not be negative")
    return tuple((int(before), int(after)) for before, after in paddings)


def arranged(op: SourceOperator, view: Shape, order: Sequence[int], shape: Shape) -> Operator:
    """Everything, seen as ``view``, with its dimensions in another order."""
    indices = tuple(tuple(range(d)) for d in view)
    return made(op, op.inputs[:1], Rearrange(tuple(view), indices, tuple(order), tuple(shape)))


def taken(
    op: SourceOperator, x: Tensor, indices: Sequence[Indices], shape: Shape | None = None
) -> Operator:
    """Some positions of each dimension, in order."""
    order = tuple(range(len(x.shape)))
    shape = tuple(map(len, indices)) if shape is None else shape
    assert math.prod(shape) == math.prod(map(len, indices))
    return made(op, op.inputs[:1], Rearrange(x.shape, tuple(indices), order, shape))


def _parts(
    op: SourceOperator, position: int, axis: int, sizes: Sequence[int], keeps: bool = True
) -> tuple[Operator, ...]:
    """One operator for every output: consecutive parts along a dimension."""
    x = movable(op, op.input(position))
    parts: list[Operator] = []
    start = 0
    for size, output in zip(sizes, op.outputs, strict=True):
        _same_type(op, x, op.tensors[output])
        indices = [tuple(range(d)) for d in x.shape]
        indices[axis] = tuple(range(start, start + size))
        start += size
        shape = (*x.shape[:axis], *((size,) if keeps else ()), *x.shape[axis + 1 :])
        attributes = Rearrange(x.shape, tuple(indices), tuple(range(len(x.shape))), shape)
        source = op.inputs[position]
        parts.append(Operator(op.kind, (source,), (output,), attributes, (op.index,)))
    return tuple(parts)


#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "BROADCAST_TO": SupportedOperator(import_broadcast_to, MOVED_OR_TRUE, "constant shape"),
    "FILL": SupportedOperator(import_fill, MOVED_OR_TRUE, "constant dimensions"),
    "CONCATENATION": SupportedOperator(
        import_concatenation, MOVED_OR_TRUE, f"{EQUALS}; fused NONE"
    ),
    "EXPAND_DIMS": SupportedOperator(import_expand_dims, MOVED_OR_TRUE, "constant axis"),
    "MIRROR_PAD": SupportedOperator(import_mirror_pad, MOVED, "constant paddings"),
    "PACK": SupportedOperator(import_concatenation, MOVED, ""),
    "PAD": SupportedOperator(import_pad, _PADDED, f"constant paddings; {EQUAL}"),
    "PADV2": SupportedOperator(import_pad, _PADDED, f"constant paddings and value; {EQUAL}"),
    "RESHAPE": SupportedOperator(import_reshape, MOVED_OR_TRUE, "constant shape"),
    "RESIZE_NEAREST_NEIGHBOR": SupportedOperator(
        import_resize_nearest_neighbor, MOVED, "NHWC; constant size"
    ),
    "REVERSE_V2": SupportedOperator(import_reverse, MOVED, "constant axes, side by side"),
    "SLICE": SupportedOperator(import_slice, MOVED_OR_TRUE, "constant begin and size"),
    "SPLIT": SupportedOperator(import_split, MOVED, "constant axis"),
    "SPLIT_V": SupportedOperator(import_split_v, MOVED, "constant sizes and axis"),
    "SQUEEZE": SupportedOperator(import_squeeze, MOVED_OR_TRUE, ""),
    "STRIDED_SLICE": SupportedOperator(
        import_strided_slice, MOVED_OR_TRUE, "constant begin, end and strides; Offset false"
    ),
    "TILE": SupportedOperator(import_tile, MOVED_OR_TRUE, "constant multiples"),
    "TRANSPOSE": SupportedOperator(import_transpose, MOVED_OR_TRUE, "constant permutation"),
    "UNPACK": SupportedOperator(import_unpack, MOVED, ""),
}
