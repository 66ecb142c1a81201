"""Operator -> call of a Thumb-2 kernel, or the reason why there is none for the case.

What a kernel multiplies by is taken from the generic call, which has it in the reference's form.
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.candidate import Candidate
from utvm_deploy.cores.core import CORES
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.conv2d import Conv2D
from utvm_deploy.kernels.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.tables import (
    FamilyLowering,
    border_of,
    constants,
    dense_tables,
    limits_of,
    short_scaling_of,
    weights_by_output,
)
from utvm_deploy.kernels.thumb.conv2d import (
    Make,
    ThumbProduct,
    thumb_conv2d_call,
    thumb_dense_call,
    thumb_product,
)
from utvm_deploy.kernels.thumb.depthwise import thumb_depthwise_call
from utvm_deploy.kernels.thumb.plain import plain_product


def lower_convolution(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """CONV_2D, and DEPTHWISE_CONV_2D: of a single channel it is a CONV_2D."""
    kernel = call.kernel
    assert isinstance(kernel, Conv2D | DepthwiseConv2D)
    is_depthwise = isinstance(kernel, DepthwiseConv2D) and kernel.channels > 1
    if is_depthwise and not _has_thumb2(core):
        # Two pixels of a channel are all that eight registers hold: that takes longer than plain C.
        return "the core has no Thumb-2"
    scaling = short_scaling_of(call)
    if isinstance(scaling, str):
        return scaling
    border, limits = border_of(graph, operator), limits_of(call)
    if is_depthwise:
        return thumb_depthwise_call(call, constants(call)["weights"], scaling, border, limits)
    weights, make = weights_by_output(call), _product_of(core)
    return thumb_conv2d_call(call, kernel.window, weights, scaling, border, limits, candidate, make)


def lower_fully_connected(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables = dense_tables(graph, operator, call)
    if isinstance(tables, str):
        return tables
    return thumb_dense_call(call, tables, candidate, _product_of(core))


def _has_thumb2(core: str) -> bool:
    return CORES[core].architecture != "armv6-m"


def _product_of(core: str) -> Make:
    return thumb_product if _has_thumb2(core) else _plain


def _plain(rounding: str, candidate: Candidate | None, sizes: tuple[int, int, int]) -> ThumbProduct:
    return plain_product(rounding)


THUMB_LOWERINGS: Mapping[str, FamilyLowering] = {
    "CONV_2D": lower_convolution,
    "DEPTHWISE_CONV_2D": lower_convolution,
    "FULLY_CONNECTED": lower_fully_connected,
}
