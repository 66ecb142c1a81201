"""Layers with weights, and what the samples say about their inputs.

An output of such a layer is a sum of products: of the weights of its channel with a row of inputs.
A convolution has a row for each position, and grouped ones have rows for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema

#: Computed in float64; the stubs of numpy know no sums of arrays of any type.
Array: TypeAlias = Any

CONV, DEPTHWISE, DENSE = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"
_INPUT, _WEIGHTS, _BIAS = range(3)
#: The schema's number of padding SAME.
_SAME = 0
#: Rows of one sample that are looked at; more of them say little that is new.
_MOST_ROWS = 1024
#: Of longer rows only the mean is kept: their products would take more than 32 MB.
MOST_COLUMNS = 2048


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of a float model."""

    kind: str
    source: str  # the name of its input
    output: str
    weights: Array
    options: Any

    @property
    def channel_axis(self) -> int:
        """The axis of the weights that counts output channels."""
        return 3 if self.kind == DEPTHWISE else 0

    def by_group(self, array: Array, channels: int) -> Array:
        """The weights as (groups, outputs of a group, columns), for an input of ``channels``."""
        moved = np.moveaxis(array, self.channel_axis, 0)
        rows = moved.reshape(len(moved), -1)
        return rows.reshape(self.groups(channels), -1, rows.shape[1])

    def from_groups(self, rows: Array) -> Array:
        """What ``by_group`` gives, in the shape of the weights."""
        shape = np.moveaxis(self.weights, self.channel_axis, 0).shape
        return np.ascontiguousarray(np.moveaxis(rows.reshape(shape), 0, self.channel_axis))

    def groups(self, channels: int) -> int:
        """Groups of input channels that are summed apart; 0 if the input does not fit."""
        if self.kind == DENSE:
            return 1
        if self.kind == DEPTHWISE:
            return 0 if self.weights.shape[3] % channels else channels
        columns = self.weights.shape[-1]
        groups = 0 if channels % columns else channels // columns
        return 0 if groups and len(self.weights) % groups else groups

    def rows(self, x: Array) -> Array | None:
        """Rows of an input: (groups, rows, columns); None if the input does not fit."""
        if self.kind == DENSE:
            columns = self.weights.shape[-1]
            return x.reshape(1, -1, columns) if x.size % columns == 0 else None
        groups = self.groups(x.shape[-1]) if x.ndim == 4 else 0
        if not groups:
            return None
        windows = self._windows(x)
        places = windows.reshape(-1, *windows.shape[3:])
        picked = np.linspace(0, len(places) - 1, min(len(places), _MOST_ROWS)).round().astype(int)
        parts = places[picked].reshape(len(picked), groups, -1, *windows.shape[4:])
        # The columns are in the order of the weights: taps, then channels.
        return np.moveaxis(parts, 2, 4).swapaxes(0, 1).reshape(groups, len(picked), -1)

    def _windows(self, x: Array) -> Array:
        """(1, rows, columns, channels, taps, taps) of the input, with zeros around it."""
        options = self.options
        strides = options.strideH, options.strideW
        apart = options.dilationHFactor, options.dilationWFactor
        reaches = [
            (n - 1) * step + 1 for n, step in zip(self.weights.shape[1:3], apart, strict=True)
        ]
        pads = [(0, 0)]
        for extent, reach, step in zip(x.shape[1:3], reaches, strides, strict=True):
            total = max((-(-extent // step) - 1) * step + reach - extent, 0)
            pads.append((total // 2, total - total // 2) if options.padding == _SAME else (0, 0))
        padded = np.pad(x, [*pads, (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, reaches, axis=(1, 2))
        return windows[:, :: strides[0], :: strides[1], :, :: apart[0], :: apart[1]]


def layers_of(model: Any) -> dict[str, Layer]:
    """The layers of a float model whose weights are constant, by the names of their outputs."""
    found = {}
    for operator in model.subgraphs[0].operators:
        kind, numbers = schema.kind_of(model, operator), schema.numbers(operator.inputs)
        if kind not in (CONV, DEPTHWISE, DENSE) or len(numbers) <= _WEIGHTS:
            continue
        weights = schema.constant(model, model.subgraphs[0].tensors[numbers[_WEIGHTS]])
        if weights is not None and weights.dtype == np.float32:
            source = schema.name_of(model, numbers[_INPUT])
            output = schema.name_of(model, operator.outputs[0])
            found[output] = Layer(kind, source, output, weights, operator.builtinOptions)
    return found


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of the rows of a layer's input: how many, their mean, and the mean of their products.

    ``mean`` is (groups, columns), and ``products`` (groups, columns, columns), or None for long
    rows.
    """

    channels: int  # of the input
    rows: int
    mean: Array
    products: Array | None


class Inputs:
    """Statistics of the inputs of a model's layers, made when they are first needed.

    ``values`` gives each tensor's name and its elements on one sample, for all samples.
    """

    def __init__(self, model: Any, values: Callable[[], Iterable[tuple[str, Array]]]) -> None:
        self.layers: Mapping[str, Layer] = layers_of(model)
        self._values = values
        self._statistics: dict[str, Statistics] | None = None

    def of(self, output: str) -> Statistics | None:
        """The statistics of the layer that makes ``output``; None if its input does not fit."""
        if self._statistics is None:
            self._statistics = self._observed()
        return self._statistics.get(output)

    def _observed(self) -> dict[str, Statistics]:
        readers: dict[str, list[Layer]] = {}
        for layer in self.layers.values():
            readers.setdefault(layer.source, []).append(layer)
        sums: dict[str, Statistics] = {}
        for name, array in self._values():
            for layer in readers.get(name, ()):
                made = _sums(layer, array.astype(np.float64))
                if made is not None:
                    before = sums.get(layer.output)
                    sums[layer.output] = made if before is None else _together(before, made)
        return {output: _means(one) for output, one in sums.items()}


def _sums(layer: Layer, x: Array) -> Statistics | None:
    rows = layer.rows(x)
    if rows is None:
        return None
    is_short = rows.shape[2] <= MOST_COLUMNS
    products = np.matmul(rows.swapaxes(1, 2), rows) if is_short else None
    return Statistics(x.shape[-1], rows.shape[1], rows.sum(axis=1), products)


def _together(one: Statistics, other: Statistics) -> Statistics:
    products = None if one.products is None else one.products + other.products
    return Statistics(one.channels, one.rows + other.rows, one.mean + other.mean, products)


def _means(sums: Statistics) -> Statistics:
    products = None if sums.products is None else sums.products / sums.rows
    return Statistics(sums.channels, sums.rows, sums.mean / sums.rows, products)


@dataclass(frozen=True, eq=False)
class Pair:
    """A layer of the float model, and the tensors of the quantized one that it became."""

    layer: Layer
    x: Any
    weights: Any
    bias: Any  # None without one

    @property
    def scales(self) -> Array:
        """Of the weights: one for each output channel."""
        scales = np.asarray(self.weights.quantization.scale, np.float64)
        return np.broadcast_to(scales, (self.layer.weights.shape[self.layer.channel_axis],))


def pairs_of(model: Any, layers: Mapping[str, Layer]) -> Iterator[Pair]:
    """The quantized layers whose weights are int8, and their own."""
    graph = model.subgraphs[0]
    readers: dict[int, int] = {}
    for operator in graph.operators:
        for number in schema.numbers(operator.inputs):
            readers[number] = readers.get(number, 0) + 1
    for operator in graph.operators:
        numbers = schema.numbers(operator.inputs)
        if not schema.numbers(operator.outputs) or len(numbers) <= _WEIGHTS:
            continue
        layer = layers.get(schema.name_of(model, operator.outputs[0]))
        if layer is None or schema.kind_of(model, operator) != layer.kind:
            continue
        own = [number for number in numbers[_WEIGHTS : _BIAS + 1] if number >= 0]
        tensors = [graph.tensors[number] for number in numbers]
        is_own = all(readers[number] == 1 for number in own)
        if is_own and tensors[_WEIGHTS].type == schema.INT8 and tensors[_INPUT].quantization:
            yield Pair(layer, *tensors[: len(own) + 1], *[None] * (2 - len(own)))
