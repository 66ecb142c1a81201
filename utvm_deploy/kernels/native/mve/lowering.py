"""Operator -> call of a Helium kernel, or the reason why there is none for the case.

What a kernel multiplies by is taken from the generic call, which has it in the reference's form.
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.native.dsp.lowering import lower_depthwise as dsp_depthwise
from utvm_deploy.kernels.native.dsp.pool import pool_call
from utvm_deploy.kernels.native.layer_tables import (
    FamilyLowering,
    convolution_tables,
    dense_tables,
    scalars,
)
from utvm_deploy.kernels.native.mve.conv2d import mve_conv2d_call
from utvm_deploy.kernels.native.mve.dense import mve_dense_call
from utvm_deploy.kernels.native.mve.depthwise import mve_depthwise_call
from utvm_deploy.kernels.native.mve.elementwise import mve_elementwise_call
from utvm_deploy.kernels.native.mve.grouped import mve_grouped_call
from utvm_deploy.kernels.native.mve.int16_pool import mve_wide_pool_call
from utvm_deploy.kernels.native.mve.int16x8 import mve_wide_conv_call, mve_wide_dense_call
from utvm_deploy.kernels.native.mve.int16x8_depthwise import mve_wide_depthwise_call
from utvm_deploy.kernels.native.mve.pool import MvePool
from utvm_deploy.kernels.native.mve.transpose_conv import mve_transpose_conv_call
from utvm_deploy.kernels.portable.conv2d import Conv2D
from utvm_deploy.kernels.portable.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.portable.pool import Pool2D
from utvm_deploy.records.candidate import Candidate

#: Fewer than half a vector of a depthwise convolution: from there on Helium loses little or gains.
_FEW_CHANNELS = 3


def lower_convolution(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """CONV_2D, and DEPTHWISE_CONV_2D: of a single channel it is a CONV_2D."""
    if isinstance(call.kernel, Conv2D) and call.kernel.groups > 1:
        if call.kernel.groups == call.kernel.input_channels:
            return "it has a group for each channel"
        return mve_grouped_call(call, convolution_tables(graph, operator, call), call.kernel.groups)
    tables = convolution_tables(graph, operator, call)
    if isinstance(call.kernel, DepthwiseConv2D) and call.kernel.channels > 1:
        few = tables.weights.shape[0] <= _FEW_CHANNELS and tables.window.strides == (1, 1)
        if candidate is None and few:
            other = dsp_depthwise(graph, operator, call, core)
            if isinstance(other, KernelCall):
                return "few channels at stride 1, which DSP code does faster"
        return mve_depthwise_call(call, tables)
    return mve_conv2d_call(call, tables, candidate)


def lower_fully_connected(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables = dense_tables(graph, operator, call)
    return tables if isinstance(tables, str) else mve_dense_call(call, tables)


def lower_elementwise(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """ADD, SUB and MUL."""
    return mve_elementwise_call(call, scalars(call))


def lower_pool(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """AVERAGE_POOL_2D and MAX_POOL_2D, and what is done as such."""
    kernel = call.kernel
    if not isinstance(kernel, Pool2D):
        return "it takes no maximum along one dimension"
    return pool_call(call, MvePool(kernel.window, kernel.channels, kernel.is_average))


def lower_transpose_conv(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """TRANSPOSE_CONV."""
    return mve_transpose_conv_call(call)


MVE_LOWERINGS: Mapping[str, FamilyLowering] = {
    "ADD": lower_elementwise,
    "AVERAGE_POOL_2D": lower_pool,
    "CONV_2D": lower_convolution,
    "DEPTHWISE_CONV_2D": lower_convolution,
    "FULLY_CONNECTED": lower_fully_connected,
    "MAX_POOL_2D": lower_pool,
    "MUL": lower_elementwise,
    "REDUCE_MAX": lower_pool,
    "SUB": lower_elementwise,
    "TRANSPOSE_CONV": lower_transpose_conv,
}


def lower_wide_convolution(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D of int16."""
    if operator.kind == "DEPTHWISE_CONV_2D":
        return mve_wide_depthwise_call(call)
    return mve_wide_conv_call(graph, operator, call)


def lower_wide_dense(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """FULLY_CONNECTED of int16."""
    return mve_wide_dense_call(graph, operator, call)


def lower_wide_pool(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """AVERAGE_POOL_2D and MAX_POOL_2D of int16, and what is done as such."""
    return mve_wide_pool_call(call)


#: The same of int16 activations.
MVE_INT16_LOWERINGS: Mapping[str, FamilyLowering] = {
    "ADD": lower_elementwise,
    "AVERAGE_POOL_2D": lower_wide_pool,
    "CONV_2D": lower_wide_convolution,
    "DEPTHWISE_CONV_2D": lower_wide_convolution,
    "FULLY_CONNECTED": lower_wide_dense,
    "MAX_POOL_2D": lower_wide_pool,
    "MUL": lower_elementwise,
    "REDUCE_MAX": lower_wide_pool,
    "SUB": lower_elementwise,
}
