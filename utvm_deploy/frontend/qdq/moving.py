"""Operators of a QDQ model that choose or repeat elements, and those that find their places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.qdq.job import Mover, Step
from utvm_deploy.frontend.qdq.operators import Array
from utvm_deploy.frontend.qdq.values import FLOAT, Constant, Quantized, Scale, Value, plain_scale

#: The schema's number of the type.
_INT64 = 4


def gather(step: Step) -> Sequence[Value]:
    """Gather along one axis; the data, or the indices, may be constant."""
    store, data, name = step.store, _source(step), f"{step.name}_indices"
    indices, before = step.value(1), store.stored(data)
    axis = step.node.integer("axis", 0) % len(before)
    if isinstance(indices, Constant):
        chosen = indices.data.astype(np.int64)
        number = store.numbers(np.where(chosen < 0, chosen + before[axis], chosen), name)
    else:
        found = store.plain(step.quantized(1))
        if store.scale_of(found).dtype not in ("int32", "int64"):
            found = store.requantized(found, plain_scale("int32"), name)
        number = found.tensor
    return [step.moved("GATHER", data, number, Axis=axis)]


def scatter(step: Step) -> Sequence[Value]:
    """TensorScatter at one place, as the cache of one sequence takes new rows."""
    store, node, name = step.store, step.node, step.name
    data = _source(step)
    shape, scale = store.stored(data), store.scale_of(data)
    axis = node.integer("axis", -2) % len(shape)
    place = store.plain(step.quantized(2))
    if math.prod(place.shape) != 1 or node.text("mode", "linear") != "linear":
        raise node.unsupported(
            "it writes to several places, or around the end of the cache; only one place of one "
            "sequence is supported"
        )
    part = store.requantized(_source(step, 1), scale, f"{name}_part")
    rest = math.prod(shape) // shape[axis]
    count = math.prod(part.shape) // rest
    if count * rest != math.prod(part.shape) or not count:
        raise node.unsupported(f"it writes {part.shape} into {shape}; give what fills the place")
    wanted = (*shape[:axis], count, *shape[axis + 1 :])
    dtype = store.scale_of(place).dtype
    ends = {
        side: [store.operand(np.zeros(size), plain_scale(dtype), f"{name}_{side}")] if size else []
        for side, size in (("before", axis), ("behind", len(shape) - axis - 1))
    }
    flat = store.reshaped(place, (1,), f"{name}_place")
    starts = [*ends["before"], flat, *ends["behind"]]
    plain = plain_scale(dtype)
    at = store.apply("CONCATENATION", starts, f"{name}_starts", (len(shape),), plain, Axis=0)
    return [
        step.moved(
            "DYNAMIC_UPDATE_SLICE",
            data,
            store.reshaped(part, wanted, f"{name}_row"),
            at.tensor,
        )
    ]


def tile(step: Step) -> Sequence[Value]:
    """Tile, and Expand, which repeats what has an extent of one."""
    store, shape, known = step.store, step.shape, step.value()
    if isinstance(known, Constant) and known.axis is None:
        padded: Array = known.data.reshape((1,) * (len(shape) - known.data.ndim) + known.data.shape)
        counts = tuple(out // size for out, size in zip(shape, padded.shape, strict=True))
        return [replace(known, data=np.tile(padded, counts))]
    data = _source(step)
    before = store.stored(data)
    full = (1,) * (len(shape) - len(before)) + before
    if step.node.kind == "Expand" and full != shape:
        return [step.moved("BROADCAST_TO", data, store.numbers(shape, f"{step.name}_shape"))]
    data = Quantized(store.reshaped(data, full, f"{step.name}_rank"), full, False)
    if full == shape:
        return [data]
    times = [big // small for big, small in zip(shape, full, strict=True)]
    return [step.moved("TILE", data, store.numbers(times, f"{step.name}_times"))]


def place_of_extreme(step: Step) -> Sequence[Value]:
    """ArgMax and ArgMin: the first of equal ones."""
    store, node, name = step.store, step.node, step.name
    if node.integer("select_last_index", 0):
        raise node.unsupported("it takes the last of equal elements; only the first is supported")
    x = store.plain(step.quantized())
    if store.scale_of(x).dtype == "int16":
        x = store.real(x)
    axis = node.integer("axis", 0) % len(x.shape)
    rest = tuple(n for a, n in enumerate(x.shape) if a != axis)
    numbers = [x.tensor, store.numbers(np.array(axis), f"{name}_axis")]
    kind = "ARG_MIN" if node.kind == "ArgMin" else "ARG_MAX"
    keeps = bool(node.integer("keepdims", 1))
    flat, plain = f"{name}_flat" if keeps else name, plain_scale("int64")
    made = store.apply(kind, numbers, flat, rest, plain, OutputType=_INT64)
    if not keeps:
        return [made]
    return [Quantized(store.reshaped(made, step.shape, name), step.shape, False)]


def cast(step: Step) -> Sequence[Value]:
    """Cast; to float it changes nothing of a quantized activation, which stands for reals."""
    store, node, value = step.store, step.node, step.value()
    to = node.integer("to", 1)
    dtypes = {1: "float32", 6: "int32", 7: "int64", 9: "bool"}
    if to not in dtypes:
        raise node.unsupported(
            f"it makes type {to} of ONNX; only float32, int32, int64 and bool are supported"
        )
    if isinstance(value, Constant):
        return [Constant(np.asarray(value.real).astype(dtypes[to]))]
    x = step.settled()
    scale = store.scale_of(x)
    if to == 1 and scale.is_quantized:
        return [x]
    if scale.is_quantized:
        x = store.real(x)
    wanted = FLOAT if to == 1 else plain_scale(dtypes[to])
    return [store.requantized(x, wanted, step.name)]


def _source(step: Step, position: int = 0) -> Quantized:
    """An input, an activation in ONNX's order or a constant, as a tensor of the file."""
    store, value = step.store, step.value(position)
    if not isinstance(value, Constant):
        return store.plain(step.quantized(position))
    if value.scales is None or value.scales.size != 1 or value.zero_points is None:
        data = np.asarray(value.real)
        scale = plain_scale(str(data.dtype)) if data.dtype.kind in "bi" else FLOAT
    else:
        data = value.data
        scale = Scale(float(value.scales[0]), int(value.zero_points[0]), str(data.dtype))
    return Quantized(store.operand(data, scale, f"{step.name}_constant"), data.shape, False)


CHOOSERS: Mapping[str, Mover] = {
    "ArgMax": place_of_extreme,
    "ArgMin": place_of_extreme,
    "Cast": cast,
    "Expand": tile,
    "Gather": gather,
    "TensorScatter": scatter,
    "Tile": tile,
}
