"""Corrects biases for what rounded weights add to the mean of each output channel.

Rounding changes a weight by a constant, and inputs such as pictures, or outputs of RELU, have means
far from 0. So each output channel is off by the sum of these products, on every input. This takes
that sum from the bias: bias correction of Nagel et al., "Data-Free Quantization Through Weight
Equalization and Bias Correction" (2019), section 4.2, with the means that the samples have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.quantizing import tflite_schema as schema

#: Computed in float64; the stubs of numpy know no sums of arrays of any type.
Array: TypeAlias = Any

_KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_INPUT, _WEIGHTS, _BIAS = range(3)


class InputMeans:
    """The mean over the samples of each element of a tensor; computed once, when needed.

    ``values`` gives each tensor's name and its elements on one sample, for all samples.
    """

    def __init__(self, values: Callable[[], Iterable[tuple[str, Array]]]) -> None:
        self._values = values
        self._means: Mapping[str, Array] | None = None

    def of(self, name: str) -> Array | None:
        """The mean of a tensor, in its shape; None if the samples do not have it."""
        if self._means is None:
            sums: dict[str, Array] = {}
            counts: dict[str, int] = {}
            for one, array in self._values():
                sums[one] = sums.get(one, 0.0) + array.astype(np.float64)
                counts[one] = counts.get(one, 0) + 1
            self._means = {one: total / counts[one] for one, total in sums.items()}
        return self._means.get(name)


def correct_biases(model: Any, origin: Any, means: InputMeans) -> None:
    """Change the biases of layers with int8 weights; ``origin`` is the float model."""
    graph, floats = model.subgraphs[0], origin.subgraphs[0]
    sources = {
        floats.tensors[one.outputs[0]].name: one
        for one in floats.operators
        if schema.numbers(one.outputs) and schema.kind_of(origin, one) in _KINDS
    }
    readers: dict[int, int] = {}
    for operator in graph.operators:
        for number in schema.numbers(operator.inputs):
            readers[number] = readers.get(number, 0) + 1
    for operator in graph.operators:
        kind = schema.kind_of(model, operator)
        numbers = schema.numbers(operator.inputs)
        if kind not in _KINDS or len(numbers) <= _BIAS or numbers[_BIAS] < 0:
            continue
        source = sources.get(graph.tensors[operator.outputs[0]].name)
        if source is None or readers[numbers[_BIAS]] > 1:
            continue
        real = floats.tensors[schema.numbers(source.inputs)[_WEIGHTS]]
        mean = means.of(schema.name_of(origin, schema.numbers(source.inputs)[_INPUT]))
        tensors = [graph.tensors[number] for number in numbers[: _BIAS + 1]]
        if mean is not None and tensors[_WEIGHTS].type == schema.INT8:
            _correct(model, kind, tensors, schema.constant(origin, real), mean)


def _correct(model: Any, kind: str, tensors: list[Any], real: Array, mean: Array) -> None:
    """``real`` are the float weights, and ``mean`` is that of the layer's input."""
    x, weights, bias = tensors
    stored, steps = schema.constant(model, weights), schema.constant(model, bias)
    if real is None or stored is None or steps is None or x.quantization is None:
        return
    scales = np.asarray(weights.quantization.scale, np.float64)
    axis = weights.quantization.quantizedDimension
    shape = [1] * real.ndim
    shape[axis] = -1
    spread = scales.reshape(shape) if scales.size > 1 else scales
    change = stored.astype(np.float64) * spread - real
    added = _added(kind, change, mean)
    if added is None:
        return
    limits = np.iinfo(steps.dtype)
    off = np.rint(added / (float(x.quantization.scale[0]) * scales))
    corrected = np.clip(steps.reshape(-1) - off, limits.min, limits.max)
    schema.set_constant(model, bias, corrected.astype(steps.dtype).reshape(steps.shape))


def _added(kind: str, change: Array, mean: Array) -> Array | None:
    """What changed weights add to each output channel on average; borders are not considered."""
    if kind == "FULLY_CONNECTED":
        columns = change.shape[-1]
        return change @ mean.reshape(-1, columns).mean(axis=0) if mean.size % columns == 0 else None
    channels = mean.reshape(-1, mean.shape[-1]).mean(axis=0)
    if kind == "DEPTHWISE_CONV_2D":
        sums = change.reshape(-1, change.shape[-1]).sum(axis=0)
        return sums * np.repeat(channels, sums.size // channels.size)
    sums = change.sum(axis=(1, 2))
    groups = channels.size // sums.shape[1]
    parts = zip(np.split(sums, groups), np.split(channels, groups), strict=True)
    return np.concatenate([part @ inputs for part, inputs in parts])
