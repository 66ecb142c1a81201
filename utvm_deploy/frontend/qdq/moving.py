"""Operators of a QDQ model that choose or repeat elements, and those that find their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from utvm_deploy.frontend.qdq.job import activation
from utvm_deploy.frontend.qdq.operators import Array, Node
from utvm_deploy.frontend.qdq.tflite_write import Options
from utvm_deploy.frontend.qdq.values import (
    FLOAT,
    Constant,
    Quantized,
    Scale,
    Storage,
    Value,
    plain_scale,
)

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
#: Storage, the operator, its inputs and the shapes of the model -> a value for each output.
Mover: TypeAlias = Callable[[Storage, Node, Sequence[Value | None], Shapes], Sequence[Value]]

#: The schema's numbers of types.
_TYPES = {"int32": 2, "int64": 4}


def gather(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Gather along one axis; the data, or the indices, may be constant."""
    data, scale = _source(store, node, values, 0)
    indices = _given(node, values, 1)
    name = node.outputs[0]
    shape = shapes[name]
    rank = len(store.file.tensors[data].shape)
    axis = node.integer("axis", 0) % rank
    if isinstance(indices, Constant):
        chosen = indices.data.astype(np.int64)
        size = store.file.tensors[data].shape[axis]
        number = store.numbers(np.where(chosen < 0, chosen + size, chosen), f"{name}_indices")
    else:
        number = _as_integers(store, node, indices, f"{name}_indices")
    options: Options = ("GatherOptions", {"Axis": axis, "BatchDims": 0})
    return [store.apply("GATHER", [data, number], name, shape, scale, options)]


def _as_integers(store: Storage, node: Node, value: Value, name: str) -> int:
    found = store.plain(activation(node, value))
    if store.scale_of(found).dtype in ("int32", "int64"):
        return found.tensor
    return store.requantized(found, plain_scale("int32"), name).tensor


def tile(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Tile, and Expand, which repeats what has an extent of one."""
    known = _given(node, values, 0)
    if isinstance(known, Constant) and known.axis is None:
        shape = shapes[node.outputs[0]]
        padded: Array = known.data.reshape((1,) * (len(shape) - known.data.ndim) + known.data.shape)
        counts = tuple(out // size for out, size in zip(shape, padded.shape, strict=True))
        return [replace(known, data=np.tile(padded, counts))]
    data, scale = _source(store, node, values, 0)
    name = node.outputs[0]
    shape = shapes[name]
    before = store.file.tensors[data].shape
    full = (1,) * (len(shape) - len(before)) + tuple(before)
    if full == shape:
        return [Quantized(_in_shape(store, data, scale, full, name), shape, False)]
    if node.kind == "Expand":
        numbers = [data, store.numbers(shape, f"{name}_shape")]
        return [store.apply("BROADCAST_TO", numbers, name, shape, scale)]
    times = [big // small for big, small in zip(shape, full, strict=True)]
    tensor = _in_shape(store, data, scale, full, name)
    numbers = [tensor, store.numbers(times, f"{name}_times")]
    return [store.apply("TILE", numbers, name, shape, scale)]


def _in_shape(store: Storage, tensor: int, scale: Scale, shape: tuple[int, ...], name: str) -> int:
    value = Quantized(tensor, tuple(store.file.tensors[tensor].shape), False)
    return store.reshaped(value, shape, f"{name}_rank")


def place_of_extreme(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """ArgMax and ArgMin: the first of equal ones."""
    if node.integer("select_last_index", 0):
        raise node.unsupported("it takes the last of equal elements; only the first is supported")
    x = store.plain(activation(node, _given(node, values, 0)))
    if store.scale_of(x).dtype == "int16":
        x = store.real(x)
    rank = len(x.shape)
    axis = node.integer("axis", 0) % rank
    name = node.outputs[0]
    rest = tuple(n for a, n in enumerate(x.shape) if a != axis)
    numbers = [x.tensor, store.numbers(np.array(axis), f"{name}_axis")]
    kind, table = ("ARG_MAX", "ArgMaxOptions")
    if node.kind == "ArgMin":
        kind, table = ("ARG_MIN", "ArgMinOptions")
    options: Options = (table, {"OutputType": _TYPES["int64"]})
    keeps = bool(node.integer("keepdims", 1))
    made = store.apply(
        kind, numbers, f"{name}_flat" if keeps else name, rest, plain_scale("int64"), options
    )
    if not keeps:
        return [made]
    return [Quantized(store.reshaped(made, shapes[name], name), shapes[name], False)]


def cast(
    store: Storage, node: Node, values: Sequence[Value | None], shapes: Shapes
) -> Sequence[Value]:
    """Cast; to float it changes nothing of a quantized activation, which stands for reals."""
    value = _given(node, values, 0)
    to = node.integer("to", 1)
    dtypes = {1: "float32", 6: "int32", 7: "int64", 9: "bool"}
    if to not in dtypes:
        raise node.unsupported(
            f"it makes type {to} of ONNX; only float32, int32, int64 and bool are supported"
        )
    if isinstance(value, Constant):
        return [Constant(np.asarray(value.real).astype(dtypes[to]))]
    x = store.settled(activation(node, value))
    scale = store.scale_of(x)
    if to == 1 and scale.is_quantized:
        return [x]
    if scale.is_quantized:
        x = store.real(x)
    wanted = FLOAT if to == 1 else plain_scale(dtypes[to])
    return [store.requantized(x, wanted, node.outputs[0])]


def _given(node: Node, values: Sequence[Value | None], position: int) -> Value:
    value = values[position] if position < len(values) else None
    if value is None:
        raise node.damaged(f"input {position} is missing")
    return value


def _source(
    store: Storage, node: Node, values: Sequence[Value | None], position: int
) -> tuple[int, Scale]:
    """An activation in ONNX's order, or a constant, as a tensor of the file."""
    value = _given(node, values, position)
    if not isinstance(value, Constant):
        x = store.plain(activation(node, value))
        return x.tensor, store.scale_of(x)
    name = f"{node.outputs[0]}_constant"
    if value.scales is None or value.scales.size != 1 or value.zero_points is None:
        real = np.asarray(value.real)
        scale = plain_scale(str(real.dtype)) if real.dtype.kind in "bi" else FLOAT
        return store.operand(real, scale, name), scale
    scale = Scale(float(value.scales[0]), int(value.zero_points[0]), str(value.data.dtype))
    return store.operand(value.data, scale, name), scale


CHOOSERS: Mapping[str, Mover] = {
    "ArgMax": place_of_extreme,
    "ArgMin": place_of_extreme,
    "Cast": cast,
    "Expand": tile,
    "Gather": gather,
    "Tile": tile,
}
