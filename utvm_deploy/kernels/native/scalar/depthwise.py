"""DEPTHWISE_CONV_2D for the scalar family: some pixels of a channel in registers, any window.

A weight is loaded once for all pixels of a tile. Windows that are as far apart as their columns
share columns, and each column is loaded once for all windows that see it. The pixels that remain
after the last whole tile of a row are computed one by one.

Layouts:
    weights  int8  [channel][tap]
    scaling  int32 [channel][bias, multiplier, offset, shift]
    limits   int32 [low, high]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.row_depthwise import ChannelRows, RowDepthwise, row_depthwise_call
from utvm_deploy.kernels.native.scalar.rounding import Rounding
from utvm_deploy.kernels.native.scaling import Scaling

#: Taps of a window that are unrolled at most, columns of a window at most, and pixels of a tile,
#: the best first.
_MOST_TAPS = 12
_MOST_COLUMNS = 16
_PIXELS = (5, 4, 6, 3, 2)


@dataclass(frozen=True)
class ScalarRowProduct(ChannelRows):
    """The micro-kernel for a window of ``rows`` x ``columns``."""

    rows: int
    columns: int
    pixels: int  # of a tile
    is_dense: bool  # windows are as far apart as their columns
    rounding: Rounding

    @property
    def label(self) -> str:
        return f"scalar{self.rounding.label}"

    @property
    def function(self) -> str:
        dense = "_dense" if self.is_dense else ""
        size = f"{self.rows}x{self.columns}{dense}_{self.pixels}"
        return f"utvm_scalar_depthwise{self.rounding.label}_{size}"

    @property
    def why(self) -> str:
        shared = ", columns shared" if self.is_dense else ""
        return f"C, {self.pixels} pixels of a channel in registers{shared}"

    def texts(self, core: str) -> tuple[str, ...]:
        return self.rounding.text, _text(self)


def scalar_depthwise_call(
    call: KernelCall, tables: ConvolutionTables, scaling: Scaling, rounding: Rounding
) -> KernelCall | str:
    """The call instead of the portable one."""
    channels, _, columns, _ = tables.weights.shape
    if columns > _MOST_COLUMNS:
        return f"a window of {columns} columns"
    product = _product(tables.window, rounding)
    kernel = RowDepthwise(tables.window, channels, product, channels // tables.inputs)
    return row_depthwise_call(
        *(call, kernel, tables.border),
        weights=tables.weights.reshape(-1),
        scaling=np.stack(scaling, axis=1).reshape(-1).astype(np.int32),
        limits=np.array(tables.limits, dtype=np.int32),
    )


def _product(window: Window, rounding: Rounding) -> ScalarRowProduct:
    """The product with the tile that leaves the fewest pixels of a row to be computed alone."""
    width = window.output_width
    pixels = min(_PIXELS, key=lambda one: width % one if one <= width else width)
    is_dense = window.strides[1] == window.dilations[1]
    return ScalarRowProduct(*window.kernel, pixels, is_dense, rounding)


@lru_cache(maxsize=32)
def _text(product: ScalarRowProduct) -> str:
    """The C of the function."""
    places = (
        ("DEPTHWISE", product.function, 1),
        ("PIXELS", str(product.pixels), 4),
        ("WEIGHTS", ", ".join(f"w{k}" for k in range(product.columns)), 1),
        ("TILE", "\n".join(_pixels(product, product.pixels)), 1),
        ("ALONE", "\n".join(_pixels(product, 1)), 1),
        ("TAPS", str(product.rows * product.columns), 1),
    )
    return replaced(family_text("scalar", "utvm_scalar_depthwise"), *places)


def _pixels(product: ScalarRowProduct, pixels: int) -> list[str]:
    """The C that computes ``pixels`` pixels of a channel."""
    tile, columns = range(pixels), range(product.columns)
    seen = {(p, k): p + k if product.is_dense else (p, k) for p in tile for k in columns}
    row = [f"w{k} = taps[{k}];" for k in columns]
    for place in dict.fromkeys(seen.values()):
        users = [one for one, found in seen.items() if found == place]
        p, k = users[0]
        row += [f"v = row[{p} * step + {k} * column_pitch];"]
        row += [f"t{p} += (uint32_t)(v * w{k});" for p, k in users]
    row += [f"taps += {len(columns)}; row += row_pitch;"]
    lines = [f"uint32_t t{p} = bias;" for p in tile]
    lines += ["const int8_t *row = x, *taps = w;"]
    if product.rows * product.columns > _MOST_TAPS:
        lines += [f"for (int32_t r = {product.rows}; r > 0; r--) {{", *row, "}"]
    else:
        lines += row * product.rows
    for p in tile:
        value = product.rounding.scaled(f"t{p}")
        lines += [f"to[{p} * channels] = (int8_t)utvm_clamp({value}, low, high);"]
    return lines
