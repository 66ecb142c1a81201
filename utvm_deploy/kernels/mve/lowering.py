"""Operator -> call of a Helium kernel, or the reason why there is none for the case.

What a kernel multiplies by is taken from the generic call, which has it in the reference's form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from utvm_deploy.candidate import Candidate
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.conv2d import Conv2D
from utvm_deploy.kernels.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.fully_connected import Dense
from utvm_deploy.kernels.micro.scaling import extremes, wide_scaling
from utvm_deploy.kernels.mve.conv2d import mve_conv2d_call
from utvm_deploy.kernels.mve.dense import mve_dense_call
from utvm_deploy.kernels.mve.depthwise import mve_depthwise_call
from utvm_deploy.kernels.operands import effective_scales, input_of, quantization_of

#: Takes the generic call, which it replaces, the core, and what to choose (None: the default).
MveLowering = Callable[[Graph, Operator, KernelCall, str, Candidate | None], KernelCall | str]


def lower_conv2d(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """CONV_2D."""
    assert isinstance(call.kernel, Conv2D)
    return _convolution(graph, operator, call, constants(call)["weights"], candidate)


def lower_depthwise(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """DEPTHWISE_CONV_2D; of a single channel it is a CONV_2D."""
    assert isinstance(call.kernel, DepthwiseConv2D)
    weights = constants(call)["weights"]
    if call.kernel.channels == 1:
        by_output = np.moveaxis(weights, 2, 0)[..., np.newaxis]
        return _convolution(graph, operator, call, by_output, candidate)
    if call.kernel.depth_multiplier > 1:
        return "more than one output for each of several channels"
    return mve_depthwise_call(
        call, call.kernel.window, weights, *_requantization(graph, operator, call)
    )


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
    return mve_dense_call(
        call, call.kernel.batch, tables["weights"], tables["bias"], scales, limits
    )


def wide_scales(graph: Graph, operator: Operator, call: KernelCall) -> list[Array] | str:
    """What ``wide_scaling`` gives for a fully connected layer: one, or one for each output."""
    assert isinstance(call.kernel, Dense)
    tables, zero_point = constants(call), scalars(call)["output_zero_point"]
    lowest, highest = extremes(tables["bias"], tables["weights"])
    if not -(2**31) <= int(lowest.min()) <= int(highest.max()) < 2**31:
        return f"a sum can reach {max(-int(lowest.min()), int(highest.max()))}"
    if not call.kernel.per_channel:
        lowest, highest = lowest.min(keepdims=True), highest.max(keepdims=True)
    found = []
    scales = effective_scales(graph, operator, lowest.size)
    for scale, low, high in zip(scales, lowest, highest, strict=True):
        scaling = wide_scaling(scale, zero_point, int(low), int(high))
        if isinstance(scaling, str):
            return scaling
        found.append(scaling)
    return found


def constants(call: KernelCall) -> Mapping[str, Array]:
    """The tables of a call, by name."""
    return {a.name: a.data for a in call.arguments if isinstance(a, ConstantArgument)}


def scalars(call: KernelCall) -> Mapping[str, int]:
    """The numbers of a call, by name."""
    return {a.name: a.value for a in call.arguments if isinstance(a, ScalarArgument)}


def _convolution(
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    weights: Array,
    candidate: Candidate | None,
) -> KernelCall:
    assert isinstance(call.kernel, Conv2D | DepthwiseConv2D)
    numbers = _requantization(graph, operator, call)
    return mve_conv2d_call(call, call.kernel.window, weights, *numbers, candidate)


def _requantization(
    graph: Graph, operator: Operator, call: KernelCall
) -> tuple[tuple[Array, Array, Array], int, tuple[int, int, int]]:
    """Bias, multiplier and shift; what borders hold; the zero point and both limits."""
    tables, numbers = constants(call), scalars(call)
    return (
        (tables["bias"], tables["multiplier"], tables["shift"]),
        quantization_of(input_of(graph, operator, 0)[1]).zero_point,
        (numbers["output_zero_point"], numbers["low"], numbers["high"]),
    )


MVE_LOWERINGS: Mapping[str, MveLowering] = {
    "CONV_2D": lower_conv2d,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "FULLY_CONNECTED": lower_fully_connected,
}
