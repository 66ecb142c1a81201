"""TRANSPOSE_CONV for cores with Helium: a product for each row of a block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.native.gathered_gemm import gathered
from utvm_deploy.kernels.native.micro_kernel import table_arguments
from utvm_deploy.kernels.native.mve.gemm import MveProduct
from utvm_deploy.kernels.native.mve.shared_blocks import has_left_shift
from utvm_deploy.kernels.native.transpose_conv import BlockConv, as_convolution, block_conv_call

#: Pixels of a call of the product, if windows are not gathered.
_IN_PLACE_PIXELS = 24


@dataclass(frozen=True)
class MveTransposeConv(BlockConv):
    """Each row of a block is a separate product."""

    family = "mve"
    driver = "utvm_mve_transpose_conv"
    helpers = "utvm_bytes_copy", "utvm_bytes_fill", "utvm_windows", "utvm_windows_gather"


def mve_transpose_conv_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    found = as_convolution(call)
    if isinstance(found, str):
        return found
    kernel, tables, first = found
    stride = kernel.strides[0]
    outputs, _, columns, inputs = tables.weights.shape
    taps = [-(-(kernel.kernel[0] - row) // stride) for row in range(stride)]
    depths = tuple(max(count, 1) * columns * inputs for count in taps)
    product = MveProduct(has_left_shift(tables.shift))
    conv = gathered(tables.window, (inputs, outputs), product, None)
    pixels = conv.pixels or _IN_PLACE_PIXELS
    made = MveTransposeConv(conv, kernel.strides, first, kernel.output, pixels, depths)
    weights = tables.weights.reshape(stride, outputs // stride, -1)
    scales = np.array([tables.bias, tables.multiplier, tables.shift], dtype=np.int32)
    packed = (
        product.pack(of_row[:, -depth:], rows)
        for of_row, depth, rows in zip(weights, depths, np.split(scales, stride, 1), strict=True)
    )
    limits = tables.zero_point, *tables.limits
    return block_conv_call(call, made, table_arguments(packed, limits), tables.border)
