"""Operator -> call of a Thumb-2 kernel, or the reason why there is none for the case.

What a kernel multiplies by is taken from the generic call, which has it in the reference's form.
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.cores.core import CORES
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.layer_tables import FamilyLowering, convolution_tables, dense_tables
from utvm_deploy.kernels.native.thumb.conv2d import (
    Make,
    ThumbProduct,
    thumb_conv2d_call,
    thumb_dense_call,
    thumb_product,
)
from utvm_deploy.kernels.native.thumb.depthwise import thumb_depthwise_call
from utvm_deploy.kernels.native.thumb.estimate import is_plain_faster
from utvm_deploy.kernels.native.thumb.plain import plain_product
from utvm_deploy.kernels.portable.conv2d import Conv2D
from utvm_deploy.kernels.portable.depthwise import DepthwiseConv2D
from utvm_deploy.kernels.portable.fully_connected import Dense
from utvm_deploy.records.candidate import Candidate


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
    tables = convolution_tables(graph, operator, call)
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    if is_depthwise:
        if candidate is None and tables.window.output_width == 1:
            return "rows of one output, which plain C does faster"
        return thumb_depthwise_call(call, tables, scaling)
    made = thumb_conv2d_call(call, tables, scaling, candidate, _product_of(core))
    return _if_faster(call, made, core, candidate)


def lower_fully_connected(
    graph: Graph, operator: Operator, call: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables = dense_tables(graph, operator, call)
    if isinstance(tables, str):
        return tables
    made = thumb_dense_call(call, tables, candidate, _product_of(core))
    return _if_faster(call, made, core, candidate)


def _if_faster(
    plain: KernelCall, made: KernelCall, core: str, candidate: Candidate | None
) -> KernelCall | str:
    """What was made, unless nobody asked for it and plain C promises to take less."""
    kernel, own = plain.kernel, made.kernel
    assert isinstance(kernel, Conv2D | DepthwiseConv2D | Dense)
    assert isinstance(own, GatheredConv2D)
    if candidate is None and is_plain_faster(kernel, own, has_thumb2=_has_thumb2(core)):
        return "plain C promises to take less"
    return made


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
