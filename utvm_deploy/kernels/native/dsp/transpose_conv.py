"""TRANSPOSE_CONV for cores with the DSP extension: a convolution over patches, by blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.native.dsp.patches import PatchesChoices, patches_kernel
from utvm_deploy.kernels.native.micro_kernel import table_arguments
from utvm_deploy.kernels.native.transpose_conv import BlockConv, as_convolution, block_conv_call


@dataclass(frozen=True)
class DspTransposeConv(BlockConv):
    """All rows of a block are channels of one product."""

    family = "dsp"
    driver = "utvm_transpose_conv"
    helpers = "utvm_bytes", "utvm_scatter_blocks"


def dsp_transpose_conv_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    found = as_convolution(call)
    if isinstance(found, str):
        return found
    kernel, tables, first = found
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    outputs = tables.weights.shape[0]
    conv = patches_kernel(tables.window, tables.inputs, outputs, 1, PatchesChoices())
    if isinstance(conv, str):
        return conv
    made = DspTransposeConv(conv, kernel.strides, first, kernel.output, conv.pixels)
    rows = np.array(scaling, dtype=np.int32)
    packed = conv.product.pack(tables.weights.reshape(outputs, -1), rows)
    return block_conv_call(call, made, table_arguments([packed], tables.limits), tables.border)
