"""What the DSP family can do: its strategies by operator."""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    constant_of,
    effective_scales,
    input_of,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import fold_input_offset, quantize_multipliers
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish, candidates_of, of_portable
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.convolution import convolution_call, convolution_choices
from utvm_deploy.kernels.native.dsp.dense import dense_choices, dsp_dense_call
from utvm_deploy.kernels.native.dsp.depthwise import depthwise_call, depthwise_choices
from utvm_deploy.kernels.native.dsp.int16_multiply import int16_multiply_call
from utvm_deploy.kernels.native.dsp.pairs import dsp_pairs_call
from utvm_deploy.kernels.native.dsp.pool import dsp_pool_call
from utvm_deploy.kernels.native.dsp.transpose_conv import dsp_transpose_conv_call
from utvm_deploy.kernels.native.layer_tables import border_of, dense_tables, limits_of
from utvm_deploy.kernels.native.scaling import Scaling, short_scaling
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.conv2d import Conv2D
from utvm_deploy.kernels.portable.depthwise import DepthwiseConv2D


def build_conv2d(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D."""
    kernel = layer.portable.kernel
    assert isinstance(kernel, Conv2D)
    weights = constant_of(layer.graph, layer.operator, 1)
    window, weights = simplified(kernel.window, weights, turns_dilated=True)
    if kernel.groups == kernel.input_channels > 1:  # a depthwise one under another name
        return _depthwise(layer, wish, window, weights[..., 0])
    return _convolution(layer, wish, window, weights, kernel.groups)


def build_depthwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """DEPTHWISE_CONV_2D; of a single channel it is a CONV_2D."""
    kernel = layer.portable.kernel
    assert isinstance(kernel, DepthwiseConv2D)
    weights = constant_of(layer.graph, layer.operator, 1)
    window, weights = simplified(kernel.window, weights, turns_dilated=True)
    by_output = np.moveaxis(weights, 3, 0)
    if kernel.channels == 1:
        by_output = by_output.reshape(by_output.shape[0], *weights.shape[1:3], 1)
        return _convolution(layer, wish, window, by_output)
    return _depthwise(layer, wish, window, by_output[:, 0])


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables = dense_tables(layer)
    return tables if isinstance(tables, str) else dsp_dense_call(layer.portable, tables, wish)


def build_pairs(layer: Layer, wish: Wish) -> KernelCall | str:
    """Elementwise operators of two inputs."""
    return dsp_pairs_call(layer.portable, is_compact=wish.compact > 0)


def _depthwise(layer: Layer, wish: Wish, window: Window, weights: Array) -> KernelCall | str:
    """``weights`` are [outputs, rows, columns]."""
    scaling = _scaling(layer, weights)
    if isinstance(scaling, str):
        return scaling
    inputs = input_of(layer.graph, layer.operator, 0)[1].shape[3]
    by_tap, multiplier = np.moveaxis(weights, 0, 2), weights.shape[0] // inputs
    limits = border_of(layer), limits_of(layer.portable)
    call, core = layer.portable, layer.core
    return depthwise_call(call, window, by_tap, multiplier, scaling, *limits, core, wish)


def _convolution(
    layer: Layer, wish: Wish, window: Window, weights: Array, groups: int = 1
) -> KernelCall | str:
    scaling = _scaling(layer, weights)
    if isinstance(scaling, str):
        return scaling
    limits = border_of(layer), limits_of(layer.portable)
    return convolution_call(layer.portable, window, weights, scaling, *limits, wish, groups)


def _scaling(layer: Layer, weights: Array) -> Scaling | str:
    """``weights`` have the output channel first; they may have all of them several times."""
    graph, operator = layer.graph, layer.operator
    _, result = output_of(graph, operator)
    outputs, times = result.shape[3], weights.shape[0] // result.shape[3]
    bias = np.tile(bias_of(graph, operator, outputs), times)
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs) * times)
    return short_scaling(
        fold_input_offset(bias, weights, border_of(layer)),
        weights,
        multiplier,
        shift,
        quantization_of(result).zero_point,
    )


FAMILY = "dsp"
_WINDOWED = convolution_choices, depthwise_choices
DSP_STRATEGIES = (
    Strategy(("CONV_2D",), build_conv2d, candidates_of(FAMILY, build_conv2d, *_WINDOWED)),
    Strategy(
        ("DEPTHWISE_CONV_2D",),
        build_depthwise,
        candidates_of(FAMILY, build_depthwise, *_WINDOWED),
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, candidates_of(FAMILY, build_dense, dense_choices)),
    Strategy(("ADD", "MAXIMUM", "MINIMUM", "MUL", "PRELU", "SUB"), build_pairs),
    Strategy(("AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX"), of_portable(dsp_pool_call)),
    Strategy(("TRANSPOSE_CONV",), of_portable(dsp_transpose_conv_call)),
    Strategy(("MUL",), of_portable(int16_multiply_call), dtype="int16"),
)
