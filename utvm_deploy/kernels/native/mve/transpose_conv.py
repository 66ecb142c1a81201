"""TRANSPOSE_CONV for cores with Helium: a convolution by blocks, a product for each of their rows.

A row of a block may have fewer taps than another row. The taps that it does not have are the first
ones of a window, so its product begins behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.native.gathered_gemm import gathered
from utvm_deploy.kernels.native.micro_kernel import table_arguments
from utvm_deploy.kernels.native.mve.code import has_left_shift
from utvm_deploy.kernels.native.mve.conv2d import MveProduct
from utvm_deploy.kernels.native.transpose_conv import BlockConv, as_convolution, block_conv_call

#: Pixels of a call of the product, if windows are not gathered.
_IN_PLACE_PIXELS = 24


@dataclass(frozen=True)
class MveTransposeConv(BlockConv):
    """Each row of a block is a separate product."""

    depths: tuple[int, ...]  # of the rows

    family = "mve"
    driver = "utvm_mve_transpose_conv"

    def helpers(self) -> tuple[str, ...]:
        return shared_text("utvm_bytes"), shared_text("utvm_windows")

    @property
    def pixels(self) -> int:
        return self.conv.pixels or _IN_PLACE_PIXELS

    @property
    def channels(self) -> int:
        return self.strides[1] * self.output[3]

    @property
    def shape_label(self) -> str:
        return f"{super().shape_label}_d{label(self.depths)}"

    @property
    def product_numbers(self) -> tuple[int, int]:
        return self.conv.depth, int(self.conv.is_gathered)

    @property
    def numbers(self) -> tuple[int, ...]:
        """In addition, of each row the depth and the sizes of its tables."""
        rows = (
            number
            for depth, (weights, scaling, _) in zip(self.depths, self._row_tables, strict=True)
            for number in (depth, weights.elements, scaling.elements)
        )
        return *super().numbers, *rows

    @property
    def tables(self) -> tuple[Operand, Operand, Operand]:
        weights, scaling, limits = zip(*self._row_tables, strict=True)
        return (
            Operand("weights", (sum(one.elements for one in weights),), "int8"),
            Operand("scaling", (sum(one.elements for one in scaling),), "int32"),
            limits[0],
        )

    @property
    def windows(self) -> Operand:
        return super().windows if self.conv.is_gathered else Operand("windows", (1,), "int8")

    @property
    def _row_tables(self) -> list[tuple[Operand, Operand, Operand]]:
        """The tables of each row of a block."""
        return [self.conv.product.tables(self.channels, depth) for depth in self.depths]


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
    made = MveTransposeConv(conv, kernel.strides, first, kernel.output, depths)
    weights = tables.weights.reshape(stride, outputs // stride, -1)
    scales = np.array([tables.bias, tables.multiplier, tables.shift], dtype=np.int32)
    packed = (
        product.pack(of_row[:, -depth:], rows)
        for of_row, depth, rows in zip(weights, depths, np.split(scales, stride, 1), strict=True)
    )
    limits = tables.zero_point, *tables.limits
    return block_conv_call(call, made, table_arguments(packed, limits), tables.border)
