"""DEPTHWISE_CONV_2D for the scalar family: some pixels of a channel in registers, any window.

The weights of a small window are loaded once for a row of the output, others once for all pixels of
a tile. Windows that are as far apart as their columns
share columns, and each column is loaded once for all windows that see it. The pixels that remain
after the last whole tile of a row are computed one by one.

Layouts:
    weights  int8  [channel][tap]
    scaling  int32 [channel][bias, multiplier, offset, shift]
    limits   int32 [low, high]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.estimated import scratch_bytes
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import equal_blocks
from utvm_deploy.kernels.native.row_depthwise import ChannelRows, RowDepthwise, row_depthwise_call
from utvm_deploy.kernels.native.scalar.rounding import Rounding
from utvm_deploy.kernels.native.scaling import Scaling

#: Taps of a window whose weights stay in registers, that are unrolled at most, columns of a window
#: at most, and pixels of a tile, the best first.
_KEPT_TAPS = 9
_MOST_TAPS = 12
_MOST_COLUMNS = 16
_PIXELS = (5, 4, 6, 3, 2)
#: Rows of the output at a time, the most first, and bytes of scratch for that at most.
_ROWS = (8, 4, 3, 2, 1)
_MOST_SCRATCH_BYTES = 6144


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
    def keeps_weights(self) -> bool:
        """Whether the weights of a channel stay in registers for all pixels of a row."""
        return self.rows * self.columns <= _KEPT_TAPS

    @property
    def why(self) -> str:
        shared = ", columns shared" if self.is_dense else ""
        return f"C, {self.pixels} pixels of a channel in registers{shared}"

    def texts(self, core: str) -> tuple[str, ...]:
        return self.rounding.text, _text(self)


@dataclass(frozen=True)
class ScalarDepthwise(RowDepthwise):
    """Several rows of the output at a time: a channel's numbers are loaded once for all of them."""

    rows: int = field(default=1, kw_only=True)  # of the output

    @property
    def lag(self) -> Lag | None:
        sizes = self.inputs, self.channels, self.rows * self.window.output_width
        return lag_by_pixels(self.window, *sizes, mixed=not self.is_copied)

    @property
    def why(self) -> str:
        return f"{super().why}, {self.rows} rows of the output at a time"

    def drive(self, c: Driver) -> None:
        w, image, output = self.window, self._image, self._output
        tables = self._read_tables(c)
        numbers = self.product.numbers(self.steps, w.output_width, self.channels)
        apart = self.steps.row * w.strides[0]
        with c.loop("batch", w.batch) as n:
            for begin, times, rows in equal_blocks(w.output_height, self.rows):
                with c.loop("block", times) as block:
                    y = block * rows + begin
                    source = image.at(n, y * w.strides[0])
                    if self.is_copied:
                        source = self._rows.at()
                        places = (image.at(n), source, y * w.strides[0] + -w.top, -w.left)
                        sizes = (w.height, w.width, self.inputs, self.repeats, self.pitch)
                        window = (self._high(rows), w.dilations[0], w.padded_width)
                        c.call("utvm_rows_copy", *places, *sizes, *window, "border")
                    buffers = (source, *tables, output.at(n, y))
                    c.call(self.product.function, *buffers, *numbers, rows, apart)

    def _high(self, rows: int) -> int:
        """Rows of the image under rows of the output."""
        return (rows - 1) * self.window.strides[0] + self.window.kernel[0]

    @property
    def _rows(self) -> Operand:
        return Operand(
            "rows", (self._high(self.rows), self.window.padded_width, self.pitch), "int8"
        )


def scalar_depthwise_call(
    call: KernelCall,
    tables: ConvolutionTables,
    scaling: Scaling,
    rounding: Rounding,
    most_scratch: int | None,
) -> KernelCall | str:
    """The call instead of the portable one."""
    channels, _, columns, _ = tables.weights.shape
    if columns > _MOST_COLUMNS:
        return f"a window of {columns} columns"
    product = _product(tables.window, rounding)
    kernel = ScalarDepthwise(tables.window, channels, product, channels // tables.inputs)
    if tables.window.dilations[0] == 1:
        every = (replace(kernel, rows=min(rows, tables.window.output_height)) for rows in _ROWS)
        most = _MOST_SCRATCH_BYTES if most_scratch is None else most_scratch
        kernel = next((one for one in every if scratch_bytes(one) <= most), kernel)
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
    taps = product.rows * product.columns
    names = [f"w{k}" for k in range(taps if product.keeps_weights else product.columns)]
    loads = [f"{name} = w[{k}];" for k, name in enumerate(names) if product.keeps_weights]
    places = (
        ("DEPTHWISE", product.function, 1),
        ("PIXELS", str(product.pixels), 4),
        ("WEIGHTS", ", ".join(names), 1),
        ("LOADS", "\n".join(loads), 1),
        ("TILE", "\n".join(_pixels(product, product.pixels)), 1),
        ("ALONE", "\n".join(_pixels(product, 1)), 1),
        ("TAPS", str(taps), 1),
    )
    return replaced(family_text("scalar", "utvm_scalar_depthwise"), *places)


def _pixels(product: ScalarRowProduct, pixels: int) -> list[str]:
    """The C that computes ``pixels`` pixels of a channel."""
    tile, columns = range(pixels), range(product.columns)
    lines = [f"uint32_t t{p} = bias;" for p in tile]
    lines += ["const int8_t *row = x;"]
    if product.keeps_weights:
        for r in range(product.rows):
            lines += _row(product, pixels, r * product.columns)
    else:
        row = [*(f"w{k} = taps[{k}];" for k in columns), *_row(product, pixels, 0)]
        row += [f"taps += {product.columns};"]
        lines += ["const int8_t *taps = w;"]
        if product.rows * product.columns > _MOST_TAPS:
            lines += [f"for (int32_t r = {product.rows}; r > 0; r--) {{", *row, "}"]
        else:
            lines += row * product.rows
    for p in tile:
        value = product.rounding.scaled(f"t{p}")
        lines += [f"to[{p} * channels] = (int8_t)utvm_clamp({value}, low, high);"]
    return lines


def _row(product: ScalarRowProduct, pixels: int, first: int) -> list[str]:
    """The C of a row of taps; ``first``: the number of its first weight."""
    tile, columns = range(pixels), range(product.columns)
    seen = {(p, k): p + k if product.is_dense else (p, k) for p in tile for k in columns}
    lines = []
    for place in dict.fromkeys(seen.values()):
        users = [one for one, found in seen.items() if found == place]
        p, k = users[0]
        lines += [f"v = row[{p} * step + {k} * column_pitch];"]
        lines += [f"t{p} += (uint32_t)(v * w{first + k});" for p, k in users]
    return [*lines, "row += row_pitch;"]
