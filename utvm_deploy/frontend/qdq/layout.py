"""Operators of a QDQ model that only move elements: written at once, with their input's scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.operators.operands import same_padding
from utvm_deploy.frontend.qdq.job import Mover, Step, in_steps, steps_of
from utvm_deploy.frontend.qdq.moving import CHOOSERS
from utvm_deploy.frontend.qdq.resize import RESIZES
from utvm_deploy.frontend.qdq.tflite_write import options_of
from utvm_deploy.frontend.qdq.values import (
    Constant,
    Flattened,
    Quantized,
    Scale,
    Storage,
    Value,
    stored_axis,
)
from utvm_deploy.frontend.qdq.weighted import (
    SAME,
    VALID,
    image,
    image_shape,
    pad_image,
    paddings,
    pooled,
    window,
)


def reshape(step: Step) -> Sequence[Value]:
    """Reshape, Flatten, Squeeze, Unsqueeze."""
    known, shape = step.value(), step.shape
    if isinstance(known, Constant) and known.axis is None:
        return [replace(known, data=known.data.reshape(shape))]
    x = step.quantized()
    if x.shape == shape:
        return [x]
    is_row = len(shape) == 2 and shape[0] == x.shape[0]
    if isinstance(x, Quantized) and x.is_last and is_row:
        return [Flattened(x, shape)]
    if isinstance(x, Flattened) and x.image.shape == shape:
        return [x.image]
    plain = step.store.plain(x)
    return [Quantized(step.store.reshaped(plain, shape, step.name), shape, False)]


def identity(step: Step) -> Sequence[Value]:
    """Identity and, at inference, Dropout."""
    if step.node.kind == "Dropout" and step.has(2):
        is_training = step.value(2)
        if not isinstance(is_training, Constant) or is_training.data.any():
            raise step.node.unsupported("it may be for training; export the model for inference")
    return [step.value()]


def transpose(step: Step) -> Sequence[Value]:
    """Transpose; to or from channels last it costs nothing."""
    node, known = step.node, step.value()
    if isinstance(known, Constant):
        axes = node.integers("perm", tuple(reversed(range(known.data.ndim))))
        axis = None if known.axis is None else axes.index(known.axis)
        return [replace(known, data=known.data.transpose(axes), axis=axis)]
    x = step.settled()
    rank = len(x.shape)
    order = node.integers("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise node.damaged(f"its perm {order} does not name every dimension of {x.shape} once")
    shape = tuple(x.shape[axis] for axis in order)
    if x.is_last and order == (0, *range(2, rank), 1):
        return [Quantized(x.tensor, shape, False)]
    if not x.is_last and rank >= 3 and order == (0, rank - 1, *range(1, rank - 1)):
        return [Quantized(x.tensor, shape, True)]
    return [step.store.permuted(step.store.plain(x), order, step.name)]


def max_pool(step: Step) -> Sequence[Value]:
    """MaxPool; what is outside the image never wins."""
    store, node = step.store, step.node
    x = image(store, store.last(step.quantized()))
    kernel, strides, dilations = window(node, node.integers("kernel_shape", ()))
    if dilations != (1, 1) or len(node.outputs) > 1:
        raise node.unsupported("it is dilated or has indices; neither is supported")
    full = image_shape(step.shape)
    sizes = (x.shape[2], x.shape[3])
    wanted = paddings(node, sizes, list(kernel), strides)
    same = [same_padding(*of) for of in zip(sizes, kernel, strides, strict=True)]
    scheme = SAME
    if wanted != same or node.integer("ceil_mode", 0):
        scheme = VALID
        for outputs, stride, (before, _), extent in zip(
            full[2:], strides, wanted, sizes, strict=True
        ):
            if (outputs - 1) * stride >= extent + before:
                raise node.unsupported(
                    "its last window begins after the last row or column, where runtimes disagree "
                    "about the size of the result; leave ceil_mode out, or pad less"
                )
        # Rounding the size up is padding behind the image.
        wanted = [
            (before, max(behind, (outputs - 1) * stride + size - before - extent))
            for (before, behind), outputs, stride, size, extent in zip(
                wanted, full[2:], strides, kernel, sizes, strict=True
            )
        ]
        if any(map(any, wanted)):
            x = pad_image(store, x, wanted, f"{step.name}_padded", value=_least(store, x))
    return [pooled(step, "MAX_POOL_2D", x, kernel, strides, scheme)]


def pad(step: Step) -> Sequence[Value]:
    """Pad with a constant, which is zero unless the operator says otherwise, or by reflection."""
    store, node, x = step.store, step.node, step.settled()
    rank = len(x.shape)
    mode = node.text("mode", "constant")
    if mode not in ("constant", "reflect"):
        raise node.unsupported(f"its mode is {mode}; only constant and reflect are supported")
    if step.has(3):
        raise node.unsupported("it names axes; only pads for every axis are supported")
    stated = node.integers("pads", ())
    if step.has(1):
        stated = tuple(int(v) for v in step.constant(1, "pads").data.reshape(-1))
    if len(stated) != 2 * rank or min(stated) < 0:
        raise node.unsupported(f"its pads are {stated} for {x.shape}; none may be negative")
    fill = node.number("value", 0.0)
    if step.has(2):
        fill = float(np.asarray(step.constant(2, "value").real).reshape(-1)[0])
    amounts = np.zeros((rank, 2), np.int32)
    for axis in range(rank):
        amounts[stored_axis(axis, rank, x.is_last)] = stated[axis], stated[rank + axis]
    around, scale = store.numbers(amounts, f"{step.name}_amounts"), store.scale_of(x)
    if mode == "reflect":
        return [step.moved("MIRROR_PAD", x, around)]
    if scale.is_quantized and abs(_nearest_real(fill, scale) - fill) > scale.scale / 2:
        # The result may have another scale, in which the constant has a step.
        x = store.real(x)
        scale = store.scale_of(x)
    if fill == 0.0:
        return [step.moved("PAD", x, around)]
    value = store.operand(in_steps(np.array([fill]), scale), scale, f"{step.name}_value")
    return [step.moved("PADV2", x, around, value)]


def _nearest_real(real: float, scale: Scale) -> float:
    """The number that the scale has for a real one."""
    return (steps_of(real, scale) - scale.zero_point) * scale.scale


def with_real_fill(
    store: Storage, values: Sequence[Value | None], offset: int
) -> list[Value | None]:
    """What a Pad of integers has: the real number behind the integer that it fills in.

    ``offset`` is how far the integers of the file are below those of the model.
    """
    x, given = values[0], values[2] if len(values) > 2 else None
    image = x.image if isinstance(x, Flattened) else x
    is_plain = given is None or (isinstance(given, Constant) and given.scales is None)
    if not isinstance(image, Quantized) or not is_plain:
        return list(values)
    scale = store.scale_of(image)
    steps = given.data.astype(np.float64) if isinstance(given, Constant) else np.zeros(1)
    return [*values[:2], Constant((steps - offset - scale.zero_point) * scale.scale), *values[3:]]


def slices(step: Step) -> Sequence[Value]:
    """Slice, with steps."""
    store, known = step.store, step.value()
    if isinstance(known, Constant) and known.axis is None:
        rank = known.data.ndim
        parts = _parts(step, known.data.shape)
        places = tuple(parts.get(axis, slice(None)) for axis in range(rank))
        return [replace(known, data=known.data[places])]
    x = step.settled()
    rank = len(x.shape)
    begin, stop, stride = [0] * rank, list(store.stored(x)), [1] * rank
    for axis, part in _parts(step, x.shape).items():
        place = stored_axis(axis, rank, x.is_last)
        begin[place], stop[place], stride[place] = part.indices(stop[place])
    # Backwards to the very first, whose end -1 would mean the last.
    end_mask = sum(1 << place for place in range(rank) if stop[place] < 0)
    stop = [max(end, 0) for end in stop]
    numbers = [
        store.numbers(places, f"{step.name}_{what}")
        for places, what in ((begin, "begin"), (stop, "end"), (stride, "strides"))
    ]
    return [step.moved("STRIDED_SLICE", x, *numbers, EndMask=end_mask)]


def _parts(step: Step, shape: tuple[int, ...]) -> Mapping[int, slice]:
    """What is cut out of each axis that the operator names."""
    node, lists = step.node, []
    for position, what in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")):
        if step.has(position):
            data = step.constant(position, what).data.reshape(-1)
            lists.append(tuple(int(v) for v in data))
        else:
            lists.append(node.integers(what, ()))
    starts, ends, axes, steps = lists
    axes = axes or tuple(range(len(starts)))
    steps = steps or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.damaged("its starts, ends, axes and steps are not equally many, or a step is 0")
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        raise node.damaged(f"its axes {axes} are not dimensions of {shape}")
    return {
        axis % len(shape): slice(first, end, step)
        for first, end, axis, step in zip(starts, ends, axes, steps, strict=True)
    }


def split(step: Step) -> Sequence[Value]:
    """Split into parts, equal or not."""
    store, node, known = step.store, step.node, step.value()
    if isinstance(known, Constant) and known.axis is None:
        axis = node.integer("axis", 0) % known.data.ndim
        ends = np.cumsum([step.shapes[name][axis] for name in node.outputs])[:-1]
        return [replace(known, data=part) for part in np.split(known.data, ends, axis)]
    x = step.settled()
    rank = len(x.shape)
    axis = node.integer("axis", 0) % rank
    shapes = [step.shapes[name] for name in node.outputs]
    sizes = [shape[axis] for shape in shapes]
    if sum(sizes) != x.shape[axis]:
        raise node.damaged(f"its parts {sizes} do not add up to {x.shape[axis]}")
    scale = store.scale_of(x)
    made = [
        store.activation(name, shape, scale, is_last=x.is_last)
        for name, shape in zip(node.outputs, shapes, strict=True)
    ]
    numbers = [
        x.tensor,
        store.numbers(sizes, f"{step.name}_sizes"),
        store.numbers(np.array(stored_axis(axis, rank, x.is_last)), f"{step.name}_axis"),
    ]
    options = options_of("SPLIT_V", {"NumSplits": len(made)})
    store.file.operator("SPLIT_V", numbers, [value.tensor for value in made], options)
    return made


def shuffle(step: Step) -> Sequence[Value]:
    """DepthToSpace and SpaceToDepth in the order that TFLite has, DCR; int16 goes by float32."""
    store, node = step.store, step.node
    x = store.last(step.quantized())
    if store.scale_of(x).dtype == "int16":
        x = store.real(x)
    size = node.integer("blocksize", 0)
    is_down = node.kind == "SpaceToDepth"
    if not is_down and node.text("mode", "DCR") != "DCR":
        raise node.unsupported("its mode is CRD; only DCR is supported")
    kind = "SPACE_TO_DEPTH" if is_down else "DEPTH_TO_SPACE"
    return [step.moved(kind, x, BlockSize=size)]


def _least(store: Storage, x: Quantized) -> float:
    """The value that no maximum is."""
    scale = store.scale_of(x)
    return scale.limits[0] if scale.is_quantized else float(np.finfo(np.float32).min)


MOVERS: Mapping[str, Mover] = {
    **CHOOSERS,
    **RESIZES,
    "DepthToSpace": shuffle,
    "Dropout": identity,
    "Flatten": reshape,
    "Identity": identity,
    "MaxPool": max_pool,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slices,
    "SpaceToDepth": shuffle,
    "Split": split,
    "Squeeze": reshape,
    "Transpose": transpose,
    "Unsqueeze": reshape,
}
