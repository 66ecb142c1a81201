"""What native kernels take from an operator and its portable call: tables, limits and scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.scaling import (
    REACH_LIMIT,
    Scaling,
    extremes,
    short_scaling,
    wide_scaling,
)
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D
from utvm_deploy.kernels.portable.integers.fully_connected import Dense


def constants(call: KernelCall) -> Mapping[str, Array]:
    """The constant tables of a call, by name."""
    return {a.name: a.data for a in call.arguments if isinstance(a, ConstantArgument)}


def scalars(call: KernelCall) -> Mapping[str, int]:
    """The scalar arguments of a call, by name."""
    return {a.name: a.value for a in call.arguments if isinstance(a, ScalarArgument)}


def limits_of(call: KernelCall) -> tuple[int, int]:
    """The smallest and the largest output."""
    numbers = scalars(call)
    return numbers["low"], numbers["high"]


@dataclass(frozen=True, eq=False)
class ConvolutionTables:
    """An int8 convolution, with its window in the form of ``simplified``."""

    window: Window
    inputs: int  # channels of the image
    weights: Array  # [outputs, rows, columns, inputs of a group]
    bias: Array  # with the zero point of the input folded in
    multiplier: Array
    shift: Array
    border: int  # the value of padding: the zero point of the input
    zero_point: int  # of the output
    limits: tuple[int, int]
    halves: bool = False  # the weights are int4

    @property
    def is_depthwise(self) -> bool:
        """Whether each output sees one of several inputs; CONV_2D in groups can be so, too."""
        return self.inputs > 1 and self.weights.shape[3:] == (1,)

    def short_scaling(self, limit: int = REACH_LIMIT) -> Scaling | str:
        """Tables to requantize in 32 bits, or why they would not be exact.

        The absolute value of each sum must be below ``limit``, at most ``REACH_LIMIT``.
        """
        scale = self.multiplier, self.shift, self.zero_point
        return short_scaling(self.bias, self.weights, *scale, limit=limit)


def convolution_tables(layer: Layer, *, turns_dilated: bool = False) -> ConvolutionTables:
    """The tables of a CONV_2D or DEPTHWISE_CONV_2D; ``turns_dilated`` as in ``simplified``."""
    call = layer.portable
    assert isinstance(call.kernel, Conv2D | DepthwiseConv2D)
    filters = layer.constant(1)
    window, weights = simplified(call.kernel.window, filters, turns_dilated=turns_dilated)
    if isinstance(call.kernel, DepthwiseConv2D):
        weights = weights.transpose(3, 1, 2, 0)
    tables, border = constants(call), quantization_of(layer.source).zero_point
    bias = fold_input_offset(layer.bias(weights.shape[0]), weights, border)
    return ConvolutionTables(
        window, layer.source.shape[3], weights, bias, tables["multiplier"], tables["shift"], border,
        scalars(call)["output_zero_point"], limits_of(call), layer.input(1).dtype == "int4",
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class DenseTables:
    """A fully connected layer of int8 that is rounded once, in 64 bits."""

    batch: int
    weights: Array  # [outputs, inputs]
    bias: Array
    scales: list[Array]  # from ``wide_scaling``: one, or one for each output
    limits: tuple[int, int]


def dense_tables(layer: Layer, factor: int = 1) -> DenseTables | str:
    """The tables of a FULLY_CONNECTED, or why one rounding in 64 bits would not be exact.

    The kernel scales sums that are ``factor`` times as large, a power of two.
    """
    call = layer.portable
    assert isinstance(call.kernel, Dense)
    tables, zero_point = constants(call), scalars(call)["output_zero_point"]
    weights, bias = layer.constant(1), tables["bias"]
    lowest, highest = extremes(bias, weights)
    if not -(2**31) <= int(lowest.min()) <= int(highest.max()) < 2**31:
        return f"a sum can reach {max(-int(lowest.min()), int(highest.max()))}"
    if not call.kernel.per_channel:
        lowest, highest = lowest.min(keepdims=True), highest.max(keepdims=True)
    found = []
    scales = layer.scales(lowest.size)
    for scale, low, high in zip(scales, lowest, highest, strict=True):
        ends = int(low) * factor, int(high) * factor
        scaling = wide_scaling(scale / factor, zero_point, *ends)
        if isinstance(scaling, str):
            return scaling
        found.append(scaling)
    return DenseTables(call.kernel.batch, weights, bias, found, limits_of(call))
