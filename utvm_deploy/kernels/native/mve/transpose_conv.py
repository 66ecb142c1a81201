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
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.native.gathered_gemm import gathered
from utvm_deploy.kernels.native.layer_tables import constants, limits_of, scalars
from utvm_deploy.kernels.native.micro_kernel import table_arguments
from utvm_deploy.kernels.native.mve.code import has_left_shift
from utvm_deploy.kernels.native.mve.conv2d import MveProduct
from utvm_deploy.kernels.native.transpose_conv import BlockConv, as_convolution, block_conv_call
from utvm_deploy.kernels.portable.transpose_conv import TransposeConv2D

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
    """The call instead of the generic one, or why there is none."""
    kernel = call.kernel
    assert isinstance(kernel, TransposeConv2D)
    tables, numbers = constants(call), scalars(call)
    found = as_convolution(kernel, tables["weights"])
    if isinstance(found, str):
        return found
    window, first, weights = found
    border = numbers["input_zero_point"]
    outputs, _, columns, inputs = weights.shape
    stride, times = kernel.strides
    taps = [-(-(kernel.kernel[0] - row) // stride) for row in range(stride)]
    depths = tuple(max(count, 1) * columns * inputs for count in taps)
    multiplier, shift = (np.tile(tables[name], times) for name in ("multiplier", "shift"))
    product = MveProduct(has_left_shift(shift))
    packed = []
    for row, depth in zip(weights.reshape(stride, outputs // stride, -1), depths, strict=True):
        flat = row[:, -depth:]
        bias = fold_input_offset(np.tile(tables["bias"], times), flat, border)
        packed.append(product.pack(flat, np.array([bias, multiplier, shift], dtype=np.int32)))
    limits = numbers["output_zero_point"], *limits_of(call)
    conv = gathered(window, (inputs, outputs), product, None)
    made = MveTransposeConv(conv, kernel.strides, first, kernel.output, depths)
    return block_conv_call(call, made, table_arguments(packed, limits), border)
