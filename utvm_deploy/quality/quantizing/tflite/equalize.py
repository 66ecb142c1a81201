"""Equalizes weights across layers: channels of very different ranges share one scale badly.

If one layer's output channel is multiplied by a factor, and the next layer's weights for it are
divided by that, the model computes the same. Factors are powers of two, so no float32 bit changes,
except where numbers leave its range. The formula is that of Nagel et al., "Data-Free Quantization
Through Weight Equalization and Bias Correction" (2019), section 4.1: the square root of the ratio
of both ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array

#: Kind -> dimension of the weights that counts output channels.
_OUTPUTS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
#: Kinds that keep channels apart and grow with their input.
_BETWEEN = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
# The schema's numbers of fused activations that grow with their input: NONE and RELU.
_GROWING = (0, 1)
#: Exponents of two beyond this would only move the problem.
_MOST_EXPONENT = 8


def equalized(data: bytes) -> tuple[bytes, int]:
    """The file with equalized weights, and how many pairs of layers were changed."""
    model = schema.read_model(data)
    count = sum(_equalize(model, *pair) for pair in list(_pairs(model)))
    return schema.model_bytes(model), count


def _pairs(model: Any) -> Iterator[tuple[Any, Any]]:
    """Layers with weights, each with the only layer that reads its output."""
    graph = model.subgraphs[0]
    readers: dict[int, list[Any]] = {}
    for operator in graph.operators:
        for number in schema.numbers(operator.inputs):
            readers.setdefault(number, []).append(operator)
    ends = set(schema.numbers(graph.outputs))
    for first in graph.operators:
        if not _is_weighted(model, first) or not _grows(first):
            continue
        second = first
        while True:
            number = schema.numbers(second.outputs)[0]
            found = readers.get(number, [])
            if len(found) != 1 or number in ends:
                break
            (second,) = found
            if schema.kind_of(model, second) not in _BETWEEN or not _grows(second):
                break
        if second is not first and _is_weighted(model, second) and _reads(second, number):
            # The first layer's bias changes, too.
            changed = [*schema.numbers(first.inputs)[1:3], schema.numbers(second.inputs)[1]]
            if all(len(readers[one]) == 1 for one in changed if one >= 0):
                yield first, second


def _is_weighted(model: Any, operator: Any) -> bool:
    numbers = schema.numbers(operator.inputs)
    if schema.kind_of(model, operator) not in _OUTPUTS or len(numbers) < 2:
        return False
    tensor = model.subgraphs[0].tensors[numbers[1]]
    return tensor.type == schema.FLOAT32 and schema.constant(model, tensor) is not None


def _reads(operator: Any, number: int) -> bool:
    return schema.numbers(operator.inputs)[0] == number


def _grows(operator: Any) -> bool:
    options = operator.builtinOptions
    return options is not None and options.fusedActivationFunction in _GROWING


def _equalize(model: Any, first: Any, second: Any) -> bool:
    """Move a factor for each channel from one layer to the next; whether that was possible."""
    graph = model.subgraphs[0]
    tensors = [graph.tensors[schema.numbers(one.inputs)[1]] for one in (first, second)]
    weights, following = (np.array(schema.constant(model, one)) for one in tensors)
    outputs: Any = np.moveaxis(weights, _OUTPUTS[schema.kind_of(model, first)], 0)
    inputs: Any = _by_input(schema.kind_of(model, second), following, len(outputs))
    if inputs is None:
        return False
    ranges = [np.abs(one).reshape(len(one), -1).max(axis=1) for one in (outputs, inputs)]
    factors = _factors(*ranges)
    if np.all(factors == 1):
        return False
    # Both are views: the arrays themselves change.
    outputs *= _column(factors, outputs)
    inputs /= _column(factors, inputs)
    for tensor, array in zip(tensors, (weights, following), strict=True):
        schema.set_constant(model, tensor, array)
    numbers = schema.numbers(first.inputs)
    if len(numbers) > 2 and numbers[2] >= 0:
        bias = graph.tensors[numbers[2]]
        schema.set_constant(model, bias, np.array(schema.constant(model, bias)) * factors)
    return True


def _by_input(kind: str, weights: Array, channels: int) -> Array | None:
    """The weights with their input channels first, as a view; None if these are not all there."""
    if kind == "DEPTHWISE_CONV_2D":
        rows, columns, outputs = weights.shape[1:]
        if outputs % channels:
            return None
        apart = weights.reshape(rows, columns, channels, outputs // channels)
        return np.moveaxis(apart, 2, 0)
    # A dense layer behind an image, and a grouped convolution, have other numbers of inputs.
    return np.moveaxis(weights, -1, 0) if weights.shape[-1] == channels else None


def _factors(outputs: Any, inputs: Any) -> Array:
    """Powers of two near the root of the ratio of both ranges; 1 where either is zero."""
    is_used = (outputs > 0) & (inputs > 0)
    ratio = np.divide(inputs, outputs, out=np.ones_like(outputs), where=is_used)
    exponents = np.clip(np.rint(np.log2(ratio) / 2), -_MOST_EXPONENT, _MOST_EXPONENT)
    factors: Array = np.exp2(exponents).astype(np.float32)
    return factors


def _column(factors: Array, like: Array) -> Array:
    return factors.reshape(-1, *[1] * (like.ndim - 1))
