"""Sane scales for channels of weights whose bias does not fit into its integers.

The scale of a bias is that of the input times that of the weights. Where all weights of a channel
are zero or tiny, ai-edge-quantizer gives them a scale near zero, and the bias saturates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.tflite.layers import Array

#: Where an operator has its input, weights and bias.
_OPERANDS: Mapping[str, tuple[int, int, int]] = {
    "CONV_2D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
}
# The largest bias in steps of its scale: half of what int32 holds, as TensorFlow's converter has
# it. So the accumulator has room for the products.
_MOST_STEPS = 2.0**30
# The same for the biases of int16 activations, which are int64 and requantized from 48 bits.
_MOST_WIDE_STEPS = 2.0**40
_MOST_WEIGHT = 127
# What a channel of zeros gets if there is no other channel to follow.
_SOME_SCALE = 1.0 / _MOST_WEIGHT


def mend_channel_scales(model: Any, origin: Any) -> None:
    """Change the scales, weights and biases of such channels; ``origin`` is the float model."""
    graph, floats = model.subgraphs[0], origin.subgraphs[0]
    sources = {floats.tensors[op.outputs[0]].name: op for op in floats.operators if _makes(op)}
    for operator in graph.operators:
        kind = schema.kind_of(model, operator)
        source = sources.get(graph.tensors[operator.outputs[0]].name) if _makes(operator) else None
        if kind in _OPERANDS and source is not None:
            _mend(model, operator, origin, source, _OPERANDS[kind])


def _makes(operator: Any) -> bool:
    return bool(schema.numbers(operator.outputs))


def _mend(
    model: Any, operator: Any, origin: Any, source: Any, places: tuple[int, int, int]
) -> None:
    x, weights, bias = (_operand(model, operator, place) for place in places)
    _, real_weights, real_bias = (_operand(origin, source, place) for place in places)
    if weights is None or weights.type != schema.INT8 or x is None or x.quantization is None:
        return
    real = schema.constant(origin, real_weights)
    if real is None or x.quantization.scale is None:
        return
    scales = np.asarray(weights.quantization.scale, np.float64)
    axis = weights.quantization.quantizedDimension
    rows = np.moveaxis(real, axis, 0).reshape(real.shape[axis], -1)
    if scales.size == 1:
        rows = real.reshape(1, -1)
    real_biases = None if bias is None else schema.constant(origin, real_bias)
    most = _MOST_STEPS if x.type == schema.INT8 else _MOST_WIDE_STEPS
    new = _sane(scales, rows, real_biases, float(x.quantization.scale[0]) * most)
    changed = new != scales
    if not changed.any():
        if bias is not None and bias.type == schema.INT64 and real_biases is not None:
            _set_wide_bias(model, bias, real_biases, float(x.quantization.scale[0]) * new)
        return
    weights.quantization.scale = new.astype(np.float32)
    shape = [1] * real.ndim
    shape[axis] = -1
    steps = np.rint(real / (new.reshape(shape) if new.size > 1 else new))
    fresh = np.clip(steps, -_MOST_WEIGHT, _MOST_WEIGHT).astype(np.int8)
    old = schema.constant(model, weights)
    assert old is not None
    kept = changed.reshape(shape) if new.size > 1 else changed
    schema.set_constant(model, weights, np.where(kept, fresh, old))
    if bias is not None and real_biases is not None:
        _set_bias(model, bias, real_biases, float(x.quantization.scale[0]) * new)


def _operand(model: Any, operator: Any, place: int) -> Any:
    inputs = schema.numbers(operator.inputs)
    if place >= len(inputs) or inputs[place] < 0:
        return None
    return model.subgraphs[0].tensors[inputs[place]]


def _sane(scales: Array, rows: Array, biases: Array | None, most: float) -> Array:
    """The scales of the channels; those that need no change stay as they are.

    ``most`` is the largest bias at a weight scale of 1.
    """
    is_dead = ~rows.any(axis=1)
    alive = scales[~is_dead]
    new = np.where(is_dead, np.median(alive) if alive.size else _SOME_SCALE, scales)
    if biases is not None:
        largest = np.abs(biases.reshape(-1).astype(np.float64))
        if new.size == 1:
            largest = largest.max(keepdims=True)
        new = np.maximum(new, largest / most)
    return new


def _set_wide_bias(model: Any, bias: Any, real: Array, scales: Array) -> None:
    """Write a bias of int64 again where the quantizer cut it off at the limits of int32."""
    steps = np.abs(real.reshape(-1).astype(np.float64)) / scales
    if (steps >= np.iinfo(np.int32).max).any():
        _set_bias(model, bias, real, scales)


def _set_bias(model: Any, bias: Any, real: Array, scales: Array) -> None:
    stored: Array = schema.constant(model, bias)
    info = np.iinfo(stored.dtype)
    scales = scales.astype(np.float32).astype(np.float64)
    steps = np.rint(real.reshape(-1).astype(np.float64) / scales)
    bias.quantization.scale = scales.astype(np.float32)
    bias.quantization.zeroPoint = np.zeros(scales.size, np.int64)
    limits = (max(float(info.min), -(2.0**47)), min(float(info.max), 2.0**47))
    schema.set_constant(model, bias, np.clip(steps, *limits).astype(stored.dtype))
