"""CONV_2D of float32 that reads windows where they are: in the image, or in padded rows.

Rows of the image are copied to scratch only where windows reach outside of it: once for each block
of rows of outputs. A window of one pixel has one long row, which is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.driver import Address, Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.fpu.gemm import CACHE_BYTES, MISS_CYCLES, FpuTile
from utvm_deploy.kernels.native.fpu.operands import copying_texts
from utvm_deploy.kernels.native.fpu.row_tile import RowTile
from utvm_deploy.kernels.native.fpu.tiled import Tiled
from utvm_deploy.kernels.native.micro_kernel import equal_blocks
from utvm_deploy.targets.table import CORES

#: Tiles that tuning tries, pixels by channels.
_TUNED = ((5, 4), (12, 2))
#: Rows, or tiles of a window of one pixel, that a block may have.
_BLOCKS = (1, 2, 3, 4, 6, 8, 16, 32)
#: Bytes of padded rows.
_ROWS_BYTES = 16 * 1024
#: Core cycles of a copied value, of a run of a tile, and of a tile without its outputs.
_COPY, _RUN, _TILE = 1.5, 14, 40
#: Bytes of a line of the data cache.
_LINE_BYTES = 32

_Tile = TypeVar("_Tile", FpuTile, RowTile)
_Self = TypeVar("_Self", bound="FpuProduct[Any]")


@dataclass(frozen=True)
class FpuProduct(Tiled[_Tile]):
    """Shape parameters of a product, whose register tile is of either kind."""

    window: Window
    input_channels: int
    output_channels: int
    tile: _Tile

    @property
    def fused(self: _Self) -> _Self:
        """The same with products and sums that may be rounded at once."""
        return replace(self, tile=replace(self.tile, fused=True))

    @property
    def outputs(self) -> int:
        return self.output_channels

    @property
    def depth(self) -> int:
        rows, columns = self.window.kernel
        return rows * columns * self.input_channels

    @property
    def _image(self) -> Operand:
        return Operand("image", self.window.input_shape(self.input_channels), self.tile.dtype)


@dataclass(frozen=True)
class FpuRowConv2D(FpuProduct[RowTile]):
    """Shape parameters; a block has some rows of outputs, or pixels of the only row."""

    block: int

    way: ClassVar[str] = " over rows"

    @property
    def name(self) -> str:
        fused = "_fused" if self.tile.fused else ""
        channels = f"{self.input_channels}x{self.output_channels}"
        tile = f"{self.tile.family}_{self.tile.label}_{self.block}{fused}"
        return f"conv2d_{self.tile.numbers}_{self.window.label}_{channels}_{tile}"

    @property
    def geometry(self) -> Array:
        """What the tiles read of the shape, then the geometry of padded rows."""
        w, pixel = self.window, self._size * self.input_channels
        row = self._columns * pixel
        length = run_length(w, self.input_channels)
        taps = self.depth // length
        step = row * w.dilations[0] if w.kernel[0] > 1 else pixel * w.dilations[1]
        jump, pitch = step - self._size * length, row * w.strides[0]
        shape = (taps, length // self.tile.step, jump, pitch, self._size * self.output_channels)
        border = (w.height, w.width, self._columns, w.left, self.input_channels)
        return np.array([*shape, *border], dtype=np.int32)

    @property
    def lag(self) -> Lag | None:
        w, pixels = self.window, self.block
        if not is_one_row(w):
            pixels *= w.output_width
        sizes = self._size * self.input_channels, self._size * self.output_channels
        return lag_by_pixels(w, *sizes, pixels, mixed=not w.is_padded)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return (self._image, self._geometry, self._panels, self._limits, "mode", self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._rows,) if self.window.is_padded else ()

    def texts(self, core: str) -> tuple[str, ...]:
        names = ("utvm_float_row", "utvm_float_border") if self.window.is_padded else ()
        tiles = (tile.text(core) for tile, _, _ in self.parts)
        return (
            *self.tile.helpers,
            *copying_texts(self.tile.dtype, *names),
            *tiles,
        )

    def drive(self, c: Driver) -> None:
        w, image, output, rows = self.window, self._image, self._output, self._rows
        with c.loop("batch", w.batch) as n:
            for first, times, count in equal_blocks(self._extent, self.block):
                with c.loop("block", times) as block:
                    place = block * count + first
                    if is_one_row(w):
                        self._multiply(c, image.at(n, 0, place), output.at(n, 0, place), 1, count)
                        continue
                    row, source = place * w.strides[0], image.at(n, place * w.strides[0])
                    if w.is_padded:
                        sizes = (row + -w.top, self._seen(count), self._geometry.at(_SHAPE_WORDS))
                        c.call(f"utvm_{self.tile.numbers}_border", image.at(n), rows.at(), *sizes)
                        source = rows.at()
                    self._multiply(c, source, output.at(n, place), count, w.output_width)

    def _multiply(self, c: Driver, source: Address, to: Address, rows: int, width: int) -> None:
        """The outputs of some rows."""
        for tile, first, groups in self.parts:
            panels = self._panels.at(first * (self.depth + 1))
            target = replace(to, element=to.element + first)
            sizes = (rows, width, groups, self._geometry.at(), "mode")
            c.call(tile.function, source, panels, self._limits.at(), target, *sizes)

    def cycles(self, core: str) -> float:
        """About the cycles, with waits for the data cache."""
        w = self.window
        blocks = -(-self._extent // self.block) * w.batch
        rows, width = (1, self.block) if is_one_row(w) else (self.block, w.output_width)
        tiles = rows * -(-width // self.tile.pixels)
        runs = self.depth // run_length(w, self.input_channels)
        total = 0.0
        for tile, _, groups in self.parts:
            outputs = tile.output_cycles * tile.pixels * tile.channels
            each = self.depth * tile.cycles(core) + runs * _RUN + _TILE + outputs
            total += tiles * groups * each
        seen = self.input_channels * (width if is_one_row(w) else self._seen(rows) * self._columns)
        total += _COPY * seen if w.is_padded else 0
        if CORES[core].cache_line_bytes and self.tile.waits:
            missed = self._missed(self._size * seen, rows * width, tiles, blocks)
            total += MISS_CYCLES * missed / CORES[core].cache_line_bytes
        return total * blocks

    def _missed(self, seen: int, pixels: int, tiles: int, blocks: int) -> float:
        """The bytes for which a block waits, if padded rows never miss the data cache.

        A store that misses waits about half as long as a load.
        """
        weights = self._size * (self.depth + 1) * self.output_channels
        panel = self._size * (self.depth + 1) * self.tile.channels
        outputs = self._size * self.output_channels * pixels
        if seen + outputs + weights <= CACHE_BYTES:
            return seen + outputs / 2 + weights / blocks
        if seen + outputs + panel <= CACHE_BYTES:
            return seen + outputs / 2 + weights
        groups = -(-self.output_channels // self.tile.channels)
        # Each group reads all pixels again, and a line of each output.
        window = seen // tiles if is_one_row(self.window) else seen // self.block
        times = 1 if self.window.is_padded or seen + panel <= CACHE_BYTES else groups
        again = 1 if self.window.is_padded or window + panel <= CACHE_BYTES else tiles
        return seen * times + weights * again + _LINE_BYTES * pixels * groups / 2

    @property
    def _extent(self) -> int:
        """What is cut into blocks."""
        w = self.window
        return w.output_width if is_one_row(w) else w.output_height

    @property
    def _columns(self) -> int:
        """Columns of the image, or of padded rows."""
        return self.window.padded_width if self.window.is_padded else self.window.width

    def _seen(self, rows: int) -> int:
        """Rows of the image that ``rows`` rows of outputs see."""
        w = self.window
        return (rows - 1) * w.strides[0] + (w.kernel[0] - 1) * w.dilations[0] + 1

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (2 * _SHAPE_WORDS,), "int32")

    @property
    def _rows(self) -> Operand:
        shape = (self._seen(min(self.block, self._extent)), self._columns, self.input_channels)
        return Operand("rows", shape, self.tile.dtype)

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.output_channels), self.tile.dtype)


#: Words that tiles read of the shape; as many say how rows are padded.
_SHAPE_WORDS = 5


def is_one_row(w: Window) -> bool:
    """Whether the outputs are one row, whose pixels see one pixel each."""
    return w.kernel == w.strides == (1, 1) and not w.is_padded and w.output_height == 1


def run_length(w: Window, channels: int) -> int:
    """The values of a window that follow each other."""
    return channels * (w.kernel[1] if w.dilations[1] == 1 or w.kernel[1] == 1 else 1)


def row_kernels(
    window: Window, inputs: int, outputs: int, core: str, kind: type[RowTile] = RowTile
) -> Iterator[FpuRowConv2D]:
    """Every kernel over rows for a convolution, by tiles of a kind."""
    w = window
    if w.kernel[0] > 1 and w.kernel[1] > 1 and w.dilations[1] > 1:
        return  # the runs of a window are not evenly apart
    if w.kernel == w.strides == (1, 1) and not w.is_padded:
        pixels = w.batch * w.height * w.width
        w = replace(w, batch=1, height=1, width=pixels, output_height=1, output_width=pixels)
        w = replace(w, dilations=(1, 1))
    stride = element_type(kind.dtype).unit_bytes * inputs * w.strides[1]
    length = run_length(w, inputs)
    step = next(one for one in kind.steps if length % one == 0)
    for pixels, channels in kind.sizes(w.output_width, outputs):
        tile = kind(pixels, channels, stride, step)
        if not tile.fits(core):
            continue
        for size in _block_sizes(w, pixels):
            kernel = FpuRowConv2D(w, inputs, outputs, tile, size)
            if sum(one.size_bytes for one in kernel.scratch) <= _ROWS_BYTES or size == 1:
                yield kernel


def _block_sizes(w: Window, pixels: int) -> Iterator[int]:
    """Sizes of blocks, each with at least one whole tile of ``pixels`` in each row.

    The last block of the only row may be too short for a tile with every size.
    """
    extent = w.output_width if is_one_row(w) else w.output_height
    for block in _BLOCKS:
        size = min(block * (pixels if is_one_row(w) else 1), extent)
        if not (is_one_row(w) and 0 < extent % size < pixels):
            yield size
        if size == extent:
            break


def row_labels(kernel: FpuRowConv2D) -> Iterator[str]:
    """Tiles over rows that may be faster for a layer and fit every core with an FPU."""
    for pixels, channels in _TUNED:
        tile = replace(kernel.tile, pixels=pixels, channels=channels)
        is_small = pixels <= kernel.window.output_width and channels <= kernel.output_channels
        has_block = any(_block_sizes(kernel.window, pixels))
        if is_small and has_block and tile.fits("cortex-m4"):
            yield tile.label
