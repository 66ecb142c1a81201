"""What other families take from an operator's generic call: its tables, its limits, its scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    constant_of,
    effective_scales,
    input_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.scaling import Scaling, extremes, short_scaling, wide_scaling
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.conv2d import Conv2D
from utvm_deploy.kernels.portable.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.portable.fully_connected import Dense


def constants(call: KernelCall) -> Mapping[str, Array]:
    """The tables of a call, by name."""
    return {a.name: a.data for a in call.arguments if isinstance(a, ConstantArgument)}


def scalars(call: KernelCall) -> Mapping[str, int]:
    """The numbers of a call, by name."""
    return {a.name: a.value for a in call.arguments if isinstance(a, ScalarArgument)}


def border_of(layer: Layer) -> int:
    """What a border holds: the zero point of the first input."""
    return quantization_of(input_of(layer.graph, layer.operator, 0)[1]).zero_point


def limits_of(call: KernelCall) -> tuple[int, int]:
    """The smallest and the largest output."""
    numbers = scalars(call)
    return numbers["low"], numbers["high"]


@dataclass(frozen=True, eq=False)
class ConvolutionTables:
    """What a convolution of int8 does, without the taps that see no image, columns as rows."""

    window: Window
    weights: Array  # [outputs, rows, columns, inputs]; a depthwise one has one input
    bias: Array  # with the input's zero point
    multiplier: Array
    shift: Array
    border: int
    zero_point: int  # of the output
    limits: tuple[int, int]

    def short_scaling(self) -> Scaling | str:
        """Requantization in 32 bits, or why it needs more."""
        return short_scaling(self.bias, self.weights, self.multiplier, self.shift, self.zero_point)


def convolution_tables(layer: Layer) -> ConvolutionTables:
    """The tables of a CONV_2D or DEPTHWISE_CONV_2D."""
    graph, operator, call = layer.graph, layer.operator, layer.portable
    assert isinstance(call.kernel, Conv2D | DepthwiseConv2D)
    window, weights = simplified(call.kernel.window, constant_of(graph, operator, 1))
    if isinstance(call.kernel, DepthwiseConv2D):
        weights = np.moveaxis(weights[0], 2, 0)[..., np.newaxis]
    tables, border = constants(call), border_of(layer)
    bias = fold_input_offset(bias_of(graph, operator, weights.shape[0]), weights, border)
    scaling = tables["multiplier"], tables["shift"]
    zero_point = scalars(call)["output_zero_point"]
    return ConvolutionTables(window, weights, bias, *scaling, border, zero_point, limits_of(call))


@dataclass(frozen=True, eq=False)
class DenseTables:
    """What a fully connected layer multiplies by, rounded once in 64 bits."""

    batch: int
    weights: Array  # [outputs, inputs]
    bias: Array
    # As ``wide_scaling`` gives them: one, or one for each output.
    scales: list[Array]
    limits: tuple[int, int]


def dense_tables(layer: Layer) -> DenseTables | str:
    """The tables of a FULLY_CONNECTED, or why they do not fit one rounding in 64 bits."""
    call = layer.portable
    assert isinstance(call.kernel, Dense)
    scales = _wide_scales(layer, call.kernel)
    if isinstance(scales, str):
        return scales
    tables = constants(call)
    return DenseTables(
        call.kernel.batch, tables["weights"], tables["bias"], scales, limits_of(call)
    )


def _wide_scales(layer: Layer, kernel: Dense) -> list[Array] | str:
    """What ``wide_scaling`` gives: one entry, or one for each output."""
    call = layer.portable
    tables, zero_point = constants(call), scalars(call)["output_zero_point"]
    lowest, highest = extremes(tables["bias"], tables["weights"])
    if not -(2**31) <= int(lowest.min()) <= int(highest.max()) < 2**31:
        return f"a sum can reach {max(-int(lowest.min()), int(highest.max()))}"
    if not kernel.per_channel:
        lowest, highest = lowest.min(keepdims=True), highest.max(keepdims=True)
    found = []
    scales = effective_scales(layer.graph, layer.operator, lowest.size)
    for scale, low, high in zip(scales, lowest, highest, strict=True):
        scaling = wide_scaling(scale, zero_point, int(low), int(high))
        if isinstance(scaling, str):
            return scaling
        found.append(scaling)
    return found
