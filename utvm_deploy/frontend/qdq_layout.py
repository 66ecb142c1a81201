"""Operators of a QDQ model that only move elements: written at once, with their input's scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from utvm_deploy.frontend.qdq import Node
from utvm_deploy.frontend.qdq_job import NONE, activation, constant
from utvm_deploy.frontend.qdq_values import (
    Flattened,
    Quantized,
    Storage,
    Value,
    stored_axis,
)
from utvm_deploy.frontend.qdq_weighted import (
    from_image,
    image,
    pad_image,
    paddings,
    same_padding,
    window,
)
from utvm_deploy.frontend.tflite_write import Options

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
#: Storage, the operator, its inputs and the shapes of the model -> a value for each output.
Mover: TypeAlias = Callable[[Storage, Node, Sequence[Value | None], Shapes], Sequence[Value]]


def reshape(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Reshape, Flatten, Squeeze, Unsqueeze."""
    x = activation(node, _first(node, values))
    shape = shapes[node.outputs[0]]
    if x.shape == shape:
        return [x]
    is_row = len(shape) == 2 and shape[0] == x.shape[0]
    if isinstance(x, Quantized) and x.is_last and is_row:
        return [Flattened(x, shape)]
    if isinstance(x, Flattened) and x.image.shape == shape:
        return [x.image]
    plain = store.plain(x)
    return [Quantized(store.reshaped(plain, shape, node.outputs[0]), shape, False)]


def identity(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Identity and, at inference, Dropout."""
    return [_first(node, values)]


def transpose(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Transpose; to or from channels last it costs nothing."""
    x = store.settled(activation(node, _first(node, values)))
    rank = len(x.shape)
    order = node.integers("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise node.damaged(f"its perm {order} does not name every dimension of {x.shape} once")
    shape = tuple(x.shape[axis] for axis in order)
    if x.is_last and order == (0, *range(2, rank), 1):
        return [Quantized(x.tensor, shape, False)]
    if not x.is_last and rank >= 3 and order == (0, rank - 1, *range(1, rank - 1)):
        return [Quantized(x.tensor, shape, True)]
    x = store.plain(x)
    name = node.outputs[0]
    numbers = [x.tensor, store.numbers(order, f"{name}_order")]
    scale = store.scale_of(x)
    return [store.apply("TRANSPOSE", numbers, name, shape, scale, ("TransposeOptions", {}))]


def max_pool(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """MaxPool; what is outside the image never wins."""
    x = image(store, store.last(activation(node, _first(node, values))))
    kernel, strides, dilations = window(node, node.integers("kernel_shape", ()))
    if dilations != (1, 1) or len(node.outputs) > 1:
        raise node.unsupported("it is dilated or has indices; neither is supported")
    name = node.outputs[0]
    shape = shapes[name]
    full = shape if len(shape) == 4 else (*shape[:2], 1, shape[2])
    sizes = (x.shape[2], x.shape[3])
    wanted = paddings(node, sizes, list(kernel), strides)
    same = [same_padding(*of) for of in zip(sizes, kernel, strides, strict=True)]
    scheme = 0
    if wanted != same or node.integer("ceil_mode", 0):
        scheme = 1
        # Rounding the size up is padding behind the image.
        wanted = [
            (before, max(behind, (outputs - 1) * stride + size - before - extent))
            for (before, behind), outputs, stride, size, extent in zip(
                wanted, full[2:], strides, kernel, sizes, strict=True
            )
        ]
        if any(map(any, wanted)):
            x = pad_image(store, x, wanted, f"{name}_padded", value=-128)
    options = {
        "Padding": scheme,
        "StrideH": strides[0],
        "StrideW": strides[1],
        "FilterHeight": kernel[0],
        "FilterWidth": kernel[1],
        "FusedActivationFunction": NONE,
    }
    made = store.apply(
        "MAX_POOL_2D",
        [x.tensor],
        name,
        full,
        store.scale_of(x),
        ("Pool2DOptions", options),
        is_last=True,
    )
    return [from_image(store, made, shape, name)]


def pad(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Pad with a constant, which is zero unless the operator says otherwise."""
    x = store.settled(activation(node, _first(node, values)))
    rank = len(x.shape)
    mode = node.text("mode", "constant")
    if mode != "constant":
        raise node.unsupported(f"its mode is {mode}; only constant is supported")
    if len(values) > 3 and values[3] is not None:
        raise node.unsupported("it names axes; only pads for every axis are supported")
    stated = node.integers("pads", ())
    if len(values) > 1 and values[1] is not None:
        stated = tuple(int(v) for v in constant(node, values[1], "pads").data.reshape(-1))
    if len(stated) != 2 * rank or min(stated) < 0:
        raise node.unsupported(f"its pads are {stated} for {x.shape}; none may be negative")
    fill = node.number("value", 0.0)
    if len(values) > 2 and values[2] is not None:
        fill = float(np.asarray(constant(node, values[2], "value").real).reshape(-1)[0])
    amounts = np.zeros((rank, 2), np.int32)
    for axis in range(rank):
        amounts[stored_axis(axis, rank, x.is_last)] = stated[axis], stated[rank + axis]
    name = node.outputs[0]
    numbers = [x.tensor, store.numbers(amounts, f"{name}_amounts")]
    scale, shape = store.scale_of(x), shapes[name]
    if fill == 0.0:
        none: Options = ("PadOptions", {})
        return [store.apply("PAD", numbers, name, shape, scale, none, is_last=x.is_last)]
    step = int(np.clip(np.rint(fill / scale.scale) + scale.zero_point, -128, 127))
    numbers.append(store.operand(np.array([step]), scale, f"{name}_value"))
    return [
        store.apply("PADV2", numbers, name, shape, scale, ("PadV2Options", {}), is_last=x.is_last)
    ]


def slices(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Slice, with steps."""
    x = store.settled(activation(node, _first(node, values)))
    rank = len(x.shape)
    lists = []
    for position, what in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")):
        value = values[position] if position < len(values) else None
        if value is None:
            lists.append(node.integers(what, ()))
        else:
            data = constant(node, value, what).data.reshape(-1)
            lists.append(tuple(int(v) for v in data))
    starts, ends, axes, steps = lists
    axes = axes or tuple(range(len(starts)))
    steps = steps or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise node.damaged("its starts, ends, axes and steps are not equally many")
    begin, stop, stride = [0] * rank, list(store.stored(x)), [1] * rank
    for first, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise node.unsupported(f"its step is {step}; only positive ones are supported")
        place = stored_axis(axis, rank, x.is_last)
        begin[place], stop[place], stride[place] = slice(first, end, step).indices(stop[place])
    name = node.outputs[0]
    numbers = [
        x.tensor,
        *(
            store.numbers(list(values_), f"{name}_{what}")
            for values_, what in ((begin, "begin"), (stop, "end"), (stride, "strides"))
        ),
    ]
    masks = {
        "BeginMask": 0,
        "EndMask": 0,
        "EllipsisMask": 0,
        "NewAxisMask": 0,
        "ShrinkAxisMask": 0,
    }
    return [
        store.apply(
            "STRIDED_SLICE",
            numbers,
            name,
            shapes[name],
            store.scale_of(x),
            ("StridedSliceOptions", masks),
            is_last=x.is_last,
        )
    ]


def split(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Split into parts, equal or not."""
    x = store.settled(activation(node, _first(node, values)))
    rank = len(x.shape)
    axis = node.integer("axis", 0) % rank
    sizes = [shapes[name][axis] for name in node.outputs]
    if sum(sizes) != x.shape[axis]:
        raise node.damaged(f"its parts {sizes} do not add up to {x.shape[axis]}")
    scale = store.scale_of(x)
    made = [store.activation(name, shapes[name], scale, is_last=x.is_last) for name in node.outputs]
    numbers = [
        x.tensor,
        store.numbers(sizes, f"{node.outputs[0]}_sizes"),
        store.numbers(np.array(stored_axis(axis, rank, x.is_last)), f"{node.outputs[0]}_axis"),
    ]
    options = ("SplitVOptions", {"NumSplits": len(made)})
    store.file.operator("SPLIT_V", numbers, [value.tensor for value in made], options)
    return made


def resize(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Resize and Upsample of images."""
    x = store.last(activation(node, _first(node, values)))
    name = node.outputs[0]
    shape = shapes[name]
    if len(shape) != 4 or shape[:2] != x.shape[:2]:
        raise node.unsupported(f"it makes {shape} of {x.shape}; only images grow and shrink")
    mode = node.text("mode", "nearest")
    how = node.text("coordinate_transformation_mode", "half_pixel")
    nearest = node.text("nearest_mode", "round_prefer_floor")
    whole = all(big % small == 0 for big, small in zip(shape[2:], x.shape[2:], strict=True))
    numbers = [x.tensor, store.numbers(shape[2:], f"{name}_size")]
    scale = store.scale_of(x)
    if mode == "nearest":
        # By a whole factor every rule that rounds to the pixel beneath says the same.
        if not whole or (how, nearest) not in (
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_floor"),
            ("half_pixel", "round_prefer_ceil"),
            ("asymmetric", "round_prefer_floor"),
        ):
            raise node.unsupported(f"it is {mode}, {how}, {nearest}; only whole factors, floor")
        if how == "asymmetric" and nearest == "round_prefer_floor" and not _is_double(x, shape):
            raise node.unsupported("it rounds to the nearest pixel by a factor other than 2")
        options: Options = (
            "ResizeNearestNeighborOptions",
            {"AlignCorners": False, "HalfPixelCenters": False},
        )
        kind = "RESIZE_NEAREST_NEIGHBOR"
    elif mode == "linear" and how in ("half_pixel", "align_corners", "asymmetric"):
        flags = {"AlignCorners": how == "align_corners", "HalfPixelCenters": how == "half_pixel"}
        options, kind = ("ResizeBilinearOptions", flags), "RESIZE_BILINEAR"
    else:
        raise node.unsupported(f"its mode is {mode} with {how}; use nearest or linear")
    return [store.apply(kind, numbers, name, shape, scale, options, is_last=True)]


def _is_double(x: Quantized, shape: tuple[int, ...]) -> bool:
    return all(big in (small, 2 * small) for big, small in zip(shape[2:], x.shape[2:], strict=True))


def shuffle(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """DepthToSpace and SpaceToDepth in the order that TFLite has, DCR."""
    x = store.last(activation(node, _first(node, values)))
    size = node.integer("blocksize", 0)
    is_down = node.kind == "SpaceToDepth"
    if not is_down and node.text("mode", "DCR") != "DCR":
        raise node.unsupported("its mode is CRD; only DCR is supported")
    kind = "SPACE_TO_DEPTH" if is_down else "DEPTH_TO_SPACE"
    table = "SpaceToDepthOptions" if is_down else "DepthToSpaceOptions"
    name = node.outputs[0]
    options = (table, {"BlockSize": size})
    return [
        store.apply(kind, [x.tensor], name, shapes[name], store.scale_of(x), options, is_last=True)
    ]


def _first(node: Node, values: Sequence[Value | None]) -> Value:
    if not values or values[0] is None:
        raise node.damaged("it has no input")
    return values[0]


MOVERS: Mapping[str, Mover] = {
    "DepthToSpace": shuffle,
    "Dropout": identity,
    "Flatten": reshape,
    "Identity": identity,
    "MaxPool": max_pool,
    "Pad": pad,
    "Reshape": reshape,
    "Resize": resize,
    "Slice": slices,
    "SpaceToDepth": shuffle,
    "Split": split,
    "Squeeze": reshape,
    "Transpose": transpose,
    "Unsqueeze": reshape,
    "Upsample": resize,
}
