"""DEPTHWISE_CONV_2D in Thumb-2: the rows of ``depthwise_code.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.row_depthwise import (
    ChannelRows,
    RowDepthwise,
    RowProduct,
    row_depthwise_call,
)
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.thumb import depthwise_code as code


@dataclass(frozen=True)
class ThumbRowProduct(ChannelRows):
    """The micro-kernel of ``depthwise_code.py``."""

    tile: code.DepthwiseTile
    label: ClassVar[str] = "thumb"

    @property
    def function(self) -> str:
        return self.tile.function

    @property
    def why(self) -> str:
        slides = ", columns shared" if self.tile.slides else ""
        return f"Thumb-2 assembly, {self.tile.pixels} pixels of a channel in registers{slides}"

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_scale"), code.depthwise_text(self.tile)


def thumb_row_product(window: Window) -> ThumbRowProduct:
    """The product with the best tile for a window."""
    rows, columns = window.kernel
    is_dense = window.strides[1] == window.dilations[1]
    pixels = code.best_pixels(window.output_width, rows * columns)
    return ThumbRowProduct(code.DepthwiseTile(rows, columns, is_dense, pixels))


def thumb_depthwise_call(
    call: KernelCall, tables: ConvolutionTables, scaling: Scaling, product: RowProduct
) -> KernelCall | str:
    """The call instead of the generic one."""
    channels, _, columns, _ = tables.weights.shape
    if columns > code.MOST_COLUMNS:
        return f"a window of {columns} columns"
    kernel = RowDepthwise(tables.window, channels, product, channels // tables.inputs)
    return row_depthwise_call(
        *(call, kernel, tables.border),
        weights=tables.weights.reshape(-1),
        scaling=np.stack(scaling, axis=1).reshape(-1).astype(np.int32),
        limits=np.array(tables.limits, dtype=np.int32),
    )
