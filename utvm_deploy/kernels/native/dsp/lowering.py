"""Operator -> call of a DSP kernel, or the reason why there is none for the case."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from utvm_deploy.graph.model import Array, Graph, Operator
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
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.convolution import convolution_call
from utvm_deploy.kernels.native.dsp.dense import dsp_dense_call
from utvm_deploy.kernels.native.dsp.depthwise import depthwise_call
from utvm_deploy.kernels.native.dsp.pairs import dsp_pairs_call
from utvm_deploy.kernels.native.dsp.pool import dsp_pool_call
from utvm_deploy.kernels.native.dsp.transpose_conv import dsp_transpose_conv_call
from utvm_deploy.kernels.native.layer_tables import (
    FamilyLowering,
    border_of,
    constants,
    limits_of,
    wide_scales_of,
)
from utvm_deploy.kernels.native.scaling import Scaling, short_scaling
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.conv2d import Conv2D
from utvm_deploy.kernels.portable.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.portable.fully_connected import Dense
from utvm_deploy.kernels.portable.pool import Pool2D
from utvm_deploy.records.candidate import Candidate


def lower_conv2d(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    core: str,
    candidate: Candidate | None = None,
) -> KernelCall | str:
    """CONV_2D."""
    assert isinstance(call.kernel, Conv2D)
    weights = constant_of(graph, operator, 1)
    window, weights = simplified(call.kernel.window, weights, turns_dilated=True)
    groups = call.kernel.groups
    if groups == call.kernel.input_channels > 1:  # a depthwise one under another name
        return _depthwise(graph, operator, call, window, weights[..., 0], core, candidate)
    return _convolution(graph, operator, call, weights, candidate, window, groups)


def lower_depthwise(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    core: str,
    candidate: Candidate | None = None,
) -> KernelCall | str:
    """DEPTHWISE_CONV_2D; of a single channel it is a CONV_2D."""
    assert isinstance(call.kernel, DepthwiseConv2D)
    weights = constant_of(graph, operator, 1)
    window, weights = simplified(call.kernel.window, weights, turns_dilated=True)
    by_output = np.moveaxis(weights, 3, 0)
    if call.kernel.channels == 1:
        by_output = by_output.reshape(by_output.shape[0], *weights.shape[1:3], 1)
        return _convolution(graph, operator, call, by_output, candidate, window)
    return _depthwise(graph, operator, call, window, by_output[:, 0], core, candidate)


def lower_fully_connected(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    core: str,
    candidate: Candidate | None = None,
) -> KernelCall | str:
    """FULLY_CONNECTED."""
    assert isinstance(call.kernel, Dense)
    scales = wide_scales_of(graph, operator, call)
    if isinstance(scales, str):
        return scales
    batch, tables, limits = call.kernel.batch, constants(call), limits_of(call)
    weights, bias = tables["weights"], tables["bias"]
    return dsp_dense_call(call, batch, weights, bias, np.array(scales), limits, candidate)


def _of_call(kernel_call: Callable[[KernelCall], KernelCall | str]) -> FamilyLowering:
    """What an operator becomes that needs nothing beside its generic call."""

    def lower(
        graph: Graph,
        operator: Operator,
        call: KernelCall,
        core: str,
        candidate: Candidate | None = None,
    ) -> KernelCall | str:
        return kernel_call(call)

    return lower


def lower_pairs(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    core: str,
    candidate: Candidate | None = None,
) -> KernelCall | str:
    """Elementwise operators of two inputs."""
    return dsp_pairs_call(call, candidate)


def _pool_call(call: KernelCall) -> KernelCall | str:
    """AVERAGE_POOL_2D and MAX_POOL_2D, and what is done as such."""
    kernel = call.kernel
    if not isinstance(kernel, Pool2D):
        return "it takes no maximum along one dimension"
    return dsp_pool_call(call, kernel.window, kernel.channels, kernel.is_average)


def _depthwise(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    window: Window,
    weights: Array,
    core: str,
    candidate: Candidate | None,
) -> KernelCall | str:
    """``weights`` are [outputs, rows, columns]."""
    scaling = _scaling(graph, operator, weights)
    if isinstance(scaling, str):
        return scaling
    multiplier = weights.shape[0] // input_of(graph, operator, 0)[1].shape[3]
    by_tap = np.moveaxis(weights, 0, 2)
    return depthwise_call(
        *(call, window, by_tap, multiplier, scaling),
        *(border_of(graph, operator), limits_of(call), core, candidate),
    )


def _convolution(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    weights: Array,
    candidate: Candidate | None,
    window: Window,
    groups: int = 1,
) -> KernelCall | str:
    scaling = _scaling(graph, operator, weights)
    if isinstance(scaling, str):
        return scaling
    border, limits = border_of(graph, operator), limits_of(call)
    return convolution_call(call, window, weights, scaling, border, limits, candidate, groups)


def _scaling(graph: Graph, operator: Operator, weights: Array) -> Scaling | str:
    """``weights`` have the output channel first; they may have all of them several times."""
    _, result = output_of(graph, operator)
    outputs, times = result.shape[3], weights.shape[0] // result.shape[3]
    zero_point = quantization_of(input_of(graph, operator, 0)[1]).zero_point
    bias = np.tile(bias_of(graph, operator, outputs), times)
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs) * times)
    return short_scaling(
        fold_input_offset(bias, weights, zero_point),
        weights,
        multiplier,
        shift,
        quantization_of(result).zero_point,
    )


DSP_LOWERINGS: Mapping[str, FamilyLowering] = {
    "ADD": lower_pairs,
    "AVERAGE_POOL_2D": _of_call(_pool_call),
    "CONV_2D": lower_conv2d,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "FULLY_CONNECTED": lower_fully_connected,
    "MAXIMUM": lower_pairs,
    "MAX_POOL_2D": _of_call(_pool_call),
    "MINIMUM": lower_pairs,
    "MUL": lower_pairs,
    "PRELU": lower_pairs,
    "REDUCE_MAX": _of_call(_pool_call),
    "SUB": lower_pairs,
    "TRANSPOSE_CONV": _of_call(dsp_transpose_conv_call),
}
