"""Operator -> call of a Thumb-2 kernel, or the reason why there is none for the case.

What a kernel multiplies by is taken from the generic call, which has it in the reference's form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from utvm_deploy.candidate import Candidate
from utvm_deploy.cores.core import CORES
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.conv2d import Conv2D
from utvm_deploy.kernels.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.fully_connected import Dense
from utvm_deploy.kernels.micro.scaling import Scaling, short_scaling
from utvm_deploy.kernels.mve.lowering import constants, scalars, wide_scales
from utvm_deploy.kernels.operands import input_of, quantization_of
from utvm_deploy.kernels.thumb.conv2d import (
    Make,
    ThumbProduct,
    thumb_conv2d_call,
    thumb_dense_call,
    thumb_product,
)
from utvm_deploy.kernels.thumb.depthwise import thumb_depthwise_call
from utvm_deploy.kernels.thumb.plain import plain_product

#: Takes the generic call, which it replaces, the core, and what to choose (None: the default).
ThumbLowering = Callable[[Graph, Operator, KernelCall, str, Candidate | None], KernelCall | str]


def lower_conv2d(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """CONV_2D."""
    assert isinstance(call.kernel, Conv2D)
    return _convolution(graph, operator, call, constants(call)["weights"], core, candidate)


def lower_depthwise(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """DEPTHWISE_CONV_2D; of a single channel it is a CONV_2D."""
    assert isinstance(call.kernel, DepthwiseConv2D)
    by_output = np.moveaxis(constants(call)["weights"], 2, 0)[..., np.newaxis]
    if call.kernel.channels == 1:
        return _convolution(graph, operator, call, by_output, core, candidate)
    if not _has_thumb2(core):
        return "the core has no Thumb-2"
    if call.kernel.depth_multiplier > 1:
        return "more than one output for each of several channels"
    scaling = _scaling(call, by_output)
    if isinstance(scaling, str):
        return scaling
    border = quantization_of(input_of(graph, operator, 0)[1]).zero_point
    numbers, weights = scalars(call), constants(call)["weights"]
    limits = numbers["low"], numbers["high"]
    return thumb_depthwise_call(call, call.kernel.window, weights, scaling, border, limits)


def lower_fully_connected(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """FULLY_CONNECTED."""
    assert isinstance(call.kernel, Dense)
    tables, numbers = constants(call), scalars(call)
    scales = wide_scales(graph, operator, call)
    if isinstance(scales, str):
        return scales
    limits = numbers["low"], numbers["high"]
    batch, weights, bias = call.kernel.batch, tables["weights"], tables["bias"]
    return thumb_dense_call(
        call, batch, weights, bias, scales, limits, candidate, _product_of(core)
    )


def _convolution(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    weights: Array,
    core: str,
    candidate: Candidate | None,
) -> KernelCall | str:
    assert isinstance(call.kernel, Conv2D | DepthwiseConv2D)
    scaling = _scaling(call, weights)
    if isinstance(scaling, str):
        return scaling
    numbers = scalars(call)
    border = quantization_of(input_of(graph, operator, 0)[1]).zero_point
    limits = numbers["low"], numbers["high"]
    window = call.kernel.window
    return thumb_conv2d_call(
        call, window, weights, scaling, border, limits, candidate, _product_of(core)
    )


def _has_thumb2(core: str) -> bool:
    return CORES[core].architecture != "armv6-m"


def _product_of(core: str) -> Make:
    return thumb_product if _has_thumb2(core) else _plain


def _plain(rounding: str, candidate: Candidate | None, sizes: tuple[int, int, int]) -> ThumbProduct:
    return plain_product(rounding)


def _scaling(call: KernelCall, weights: Array) -> Scaling | str:
    """``weights`` have the output channel first."""
    tables = constants(call)
    zero_point = scalars(call)["output_zero_point"]
    return short_scaling(tables["bias"], weights, tables["multiplier"], tables["shift"], zero_point)


THUMB_LOWERINGS: Mapping[str, ThumbLowering] = {
    "CONV_2D": lower_conv2d,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "FULLY_CONNECTED": lower_fully_connected,
}
