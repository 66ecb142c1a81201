"""TRANSPOSE_CONV for cores with the DSP extension: a convolution over patches, by blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.native.dsp.code import helper
from utvm_deploy.kernels.native.dsp.patches import patches_kernel
from utvm_deploy.kernels.native.layer_tables import constants, limits_of, scalars
from utvm_deploy.kernels.native.micro_kernel import table_arguments
from utvm_deploy.kernels.native.scaling import short_scaling
from utvm_deploy.kernels.native.transpose_conv import BlockConv, as_convolution, block_conv_call
from utvm_deploy.kernels.portable.transpose_conv import TransposeConv2D


@dataclass(frozen=True)
class DspTransposeConv(BlockConv):
    """All rows of a block are channels of one product."""

    family = "dsp"
    driver = "utvm_transpose_conv"

    def helpers(self) -> tuple[str, ...]:
        return shared_text("utvm_bytes"), helper("utvm_scatter_blocks")


def dsp_transpose_conv_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the generic one, or why there is none."""
    kernel = call.kernel
    assert isinstance(kernel, TransposeConv2D)
    tables, numbers = constants(call), scalars(call)
    found = as_convolution(kernel, tables["weights"])
    if isinstance(found, str):
        return found
    window, first, weights = found
    border, times = numbers["input_zero_point"], math.prod(kernel.strides)
    bias, multiplier, shift = (
        np.tile(tables[name], times) for name in ("bias", "multiplier", "shift")
    )
    bias = fold_input_offset(bias, weights, border)
    scaling = short_scaling(bias, weights, multiplier, shift, numbers["output_zero_point"])
    if isinstance(scaling, str):
        return scaling
    conv = patches_kernel(window, weights.shape[3], weights.shape[0])
    if isinstance(conv, str):
        return conv
    flat = weights.reshape(weights.shape[0], -1)
    flat = np.pad(flat, ((0, 0), (0, conv.depth - flat.shape[1])))
    packed = conv.product.pack(flat, np.array(scaling, dtype=np.int32))
    made = DspTransposeConv(conv, kernel.strides, first, kernel.output)
    return block_conv_call(call, made, table_arguments([packed], limits_of(call)), border)
