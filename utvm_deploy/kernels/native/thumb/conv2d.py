"""CONV_2D and FULLY_CONNECTED in Thumb-2: the product of ``gemm.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.native.gathered_gemm import (
    gathered,
    gathered_conv2d_call,
    gathered_dense_call,
)
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables, DenseTables
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.thumb import gemm
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D

#: Makes the product: how to round, what to choose, and how many pixels, channels and products.
Make = Callable[[str, "GemmChoices", tuple[int, int, int]], "ThumbProduct"]


@dataclass(frozen=True)
class GemmChoices(Choices):
    """Pixels gathered at a time, products of the inner loop, and the register tile by its label."""

    pixels: int | None = None
    step: int | None = None
    tile: str | None = None


@dataclass(frozen=True)
class ThumbProduct:
    """The micro-kernel of ``gemm.py``."""

    tile: gemm.ThumbTile
    depth_step: ClassVar[int] = 4
    has_parts: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return f"thumb{self.tile.rounding}_{self.tile.label}_{self.tile.step}"

    @property
    def pixels(self) -> int:
        return self.tile.pixels

    @property
    def function(self) -> str:
        return self.tile.function

    @property
    def why(self) -> str:
        pixels, channels = self.tile.pixels, self.tile.channels
        return f"Thumb-2 assembly, {pixels} pixels x {channels} channels in registers"

    def cycles(self, count: int, channels: int, depth: int) -> float:
        """About the cycles of the product of ``count`` pixels."""
        return self.tile.cycles(count, channels, depth)

    def texts(self, core: str) -> tuple[str, ...]:
        scale = "utvm_scale" if self.tile.rounding == gemm.SHORT else "utvm_scale_wide"
        return shared_text(scale), gemm.gemm_text(self.tile)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        filled = -(-channels // self.tile.channels) * self.tile.channels
        return (
            Operand("weights", (filled * depth,), "int8"),
            Operand("scaling", (filled * self.tile.rows,), "int32"),
            Operand("limits", (6 if self.tile.rounding == gemm.WIDE else 2,), "int32"),
        )

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """[channels, depth] and [rows, channels] -> both tables."""
        return gemm.pack_weights(weights, self.tile), gemm.pack_scaling(rows, self.tile)


def thumb_conv2d_call(
    call: KernelCall,
    tables: ConvolutionTables,
    scaling: Scaling,
    choices: GemmChoices,
    make: Make,
) -> KernelCall:
    """The call instead of the generic one."""
    window, weights, generic = tables.window, tables.weights, call.kernel
    groups = generic.groups if isinstance(generic, Conv2D) else 1
    outputs, inputs = weights.shape[0] // groups, weights.shape[3]
    count = window.batch * window.output_height * window.output_width
    product = make(gemm.SHORT, choices, (count, outputs, -(-weights[0].size // 4) * 4))
    kernel = gathered(window, (inputs, outputs), product, choices.pixels, groups)
    rows = np.array(scaling, dtype=np.int32)
    return gathered_conv2d_call(call, kernel, weights, rows, tables.limits, tables.border)


def thumb_dense_call(
    call: KernelCall, tables: DenseTables, choices: GemmChoices, make: Make
) -> KernelCall:
    """A fully connected layer instead of the generic one."""
    rounding = gemm.WIDE if len(tables.scales) == 1 else gemm.WIDE_EACH
    product = make(rounding, choices, (tables.batch, *tables.weights.shape))
    return gathered_dense_call(call, tables, product)


def thumb_product(rounding: str, choices: GemmChoices, sizes: tuple[int, int, int]) -> ThumbProduct:
    """With the register tile that is chosen, or the best of those that it leaves open.

    ``sizes``: pixels, channels, depth.
    """
    label, step = choices.tile, choices.step
    tiles = [t for t in gemm.TILES if label in (None, t.label) and step in (None, t.step)]
    if not tiles:
        raise UnsupportedOperator(f"no register tile {label} with step {step}")
    best = min(tiles, key=lambda tile: tile.cycles(*sizes))
    return ThumbProduct(replace(best, rounding=rounding))
