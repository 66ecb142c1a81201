"""CONV_2D, DEPTHWISE_CONV_2D of one channel, and FULLY_CONNECTED of float32, as matrix products.

The windows of a tile's pixels are copied to scratch, as the product reads them. A tile of one pixel
reads its input in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.attributes import Convolution, FullyConnected
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Address, Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.strategy import Choices, Layer, Wish
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.fpu.gemm import (
    FLOAT_BYTES,
    MISS_CYCLES,
    MOST_CHANNELS,
    TILES,
    FpuTile,
    gemm_text,
)
from utvm_deploy.kernels.native.fpu.operands import (
    elements,
    float_bias,
    refused_weights,
    window_of_layer,
)
from utvm_deploy.kernels.native.fpu.rows import FpuProduct, FpuRowConv2D, row_kernels, row_labels
from utvm_deploy.kernels.native.fpu.shared_blocks import limits_table, mode_of
from utvm_deploy.kernels.native.micro_kernel import equal_blocks
from utvm_deploy.targets.arm_m.toolchain import has_extremes
from utvm_deploy.targets.table import CORES

#: Core cycles of a value that is copied as a tile reads it.
_GATHER_CYCLES = 4
#: Bytes of the tiles that are copied at a time, unless one takes more.
_TILES_BYTES = 16 * 1024
#: Without VMAXNM and VMINNM, outputs of fewer products cost more to limit than a tile saves
#: (docs/internals/float-kernels.md).
_LEAST_DEPTH = 64
#: Weights of a group that a small data cache keeps from tile to tile.
_KEPT_BYTES = 3 * 1024
_GEOMETRY_WORDS = 12


@dataclass(frozen=True)
class TileChoices(Choices):
    """The register tile by its label: pixels by channels, and ``_rows`` if it reads in place."""

    tile: str | None = None


@dataclass(frozen=True)
class FpuConv2D(FpuProduct[FpuTile]):
    """Shape parameters; a fully connected layer has windows of one pixel."""

    tiles: int = 1  # that are copied at a time
    is_dense: bool = False

    @property
    def name(self) -> str:
        fused = "_fused" if self.tile.fused else ""
        tiles = f"_{self.tiles}" if self.tiles > 1 else ""
        end = f"{self.input_channels}x{self.output_channels}_fpu_{self.tile.label}{tiles}{fused}"
        if self.is_dense:
            return f"fully_connected_float_n{self.window.batch}_{end}"
        return f"conv2d_float_{self.window.label}_{end}"

    @property
    def geometry(self) -> Array:
        """``struct utvm_float_window``."""
        w = self.window
        values = (w.height, w.width, self.input_channels, w.output_width)
        steps = (*w.kernel, *w.strides, *w.dilations, w.top, w.left)
        return np.array([*values, *steps], dtype=np.int32)

    @property
    def is_gathered(self) -> bool:
        """Whether windows are copied."""
        return not self.is_dense or self.tile.pixels > 1

    @property
    def lag(self) -> Lag | None:
        if not self.is_gathered:
            return None
        sizes = FLOAT_BYTES * self.input_channels, FLOAT_BYTES * self.output_channels
        return lag_by_pixels(self.window, *sizes, self._block)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        geometry = (self._geometry,) if self.is_gathered else ()
        return (self._image, *geometry, self._panels, self._limits, "mode", self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._tile,) if self.is_gathered else ()

    def texts(self, core: str) -> tuple[str, ...]:
        gather = (family_text("fpu", "utvm_float_tile"),) if self.is_gathered else ()
        tiles = (gemm_text(tile, core) for tile, _, _ in self.parts)
        return (shared_text("utvm_float_limited"), *gather, *tiles)

    def drive(self, c: Driver) -> None:
        image, output, tile = self._image, self._output, self._tile
        if not self.is_gathered:
            self._multiply(c, image.at(), output.at(), self.window.batch)
            return
        with c.loop("batch", self.window.batch) as n:
            for first, times, count in equal_blocks(self._pixels, self._block):
                with c.loop("block", times) as block:
                    pixel = block * count + first
                    numbers = (pixel, count, self.tile.pixels)
                    c.call("utvm_float_tile", image.at(n), tile.at(), *numbers, self._geometry.at())
                    self._multiply(c, tile.at(), output.at(n, pixel), count)

    def _multiply(self, c: Driver, pixels: Address, target: Address, count: int) -> None:
        """The products of some tiles' pixels with all channels."""
        pitch = FLOAT_BYTES * self.output_channels
        for tile, first, groups in self.parts:
            panels = self._panels.at(first * (self.depth + 1))
            to = replace(target, element=target.element + first)
            sizes = (count, groups, self.depth, pitch, "mode")
            c.call(tile.function, pixels, panels, self._limits.at(), to, *sizes)

    def cycles(self, core: str) -> float:
        """About the cycles, if the copied windows never miss the data cache."""
        count = self.window.batch * self._pixels
        shared = self.tiles if self.is_gathered else self.window.batch
        sizes = self.depth, core, shared
        total = sum(tile.cycles(count, groups, *sizes) for tile, _, groups in self.parts)
        if not self.is_gathered:
            return total
        total += _GATHER_CYCLES * count * self.depth
        if line := CORES[core].cache_line_bytes:
            total += MISS_CYCLES * (self._image.size_bytes + self._output.size_bytes // 2) / line
        return total

    @property
    def _block(self) -> int:
        """Pixels that are copied at a time."""
        return self.tile.pixels * self.tiles

    @property
    def _pixels(self) -> int:
        return self.window.output_height * self.window.output_width

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (_GEOMETRY_WORDS,), "int32")

    @property
    def _tile(self) -> Operand:
        return Operand("tile", (self.tiles, self.depth, self.tile.pixels), "float32")

    @property
    def _output(self) -> Operand:
        shape = (self.window.batch, self._pixels, self.output_channels)
        return Operand("output", shape, "float32")


def build_product(layer: Layer, wish: Wish) -> KernelCall | str:
    """A convolution that is a matrix product, or FULLY_CONNECTED."""
    choices = TileChoices() if wish.is_open else TileChoices.read(wish.candidate)
    if isinstance(choices, str):
        return choices
    found = product_of(layer)
    if isinstance(found, str):
        return found
    window, weights, limits = found
    flat = weights.reshape(len(weights), -1)
    if wish.candidate is None and flat.shape[1] < _LEAST_DEPTH and not has_extremes(layer.core):
        return f"outputs of {flat.shape[1]} products, which plain C does faster"
    sizes = weights.shape[-1], len(weights)
    is_dense = layer.kind == "FULLY_CONNECTED"
    kernels: list[FpuConv2D | FpuRowConv2D] = [
        FpuConv2D(window, *sizes, tile, tiles, is_dense)
        for tile in _tiles(len(weights), is_dense)
        for tiles in _tile_counts(window, weights[0].size, tile, layer.core)
    ]
    if not is_dense:
        kernels += row_kernels(window, *sizes, layer.core)
    kernels = [one for one in kernels if choices.tile in (None, one.tile.label)]
    if not kernels:
        return f"there is no tile {choices.tile} for it"
    return product_call(layer, wish, kernels, flat, limits)


def product_of(layer: Layer) -> tuple[Window, Array, Limits] | str:
    """Window, weights [outputs, rows, columns, inputs] or [outputs, inputs], and limits."""
    if layer.kind != "FULLY_CONNECTED":
        return _of_convolution(layer)
    weights = layer.constant(1)
    batch = int(np.prod(layer.result.shape)) // len(weights)
    window = Window(batch, 1, 1, 1, 1, (1, 1), (1, 1), (1, 1), 0, 0)
    return window, weights, layer.attributes(FullyConnected).limits


def product_call(
    layer: Layer,
    wish: Wish,
    kernels: Sequence[FpuConv2D | FpuRowConv2D],
    weights: Array,
    limits: Limits,
) -> KernelCall:
    """The call of the kernel that takes the fewest cycles within the wish's scratch."""
    if wish.most_scratch is not None:
        least = min(_scratch(one) for one in kernels)
        most = max(least, wish.most_scratch)
        kernels = [one for one in kernels if _scratch(one) <= most]
    kernel = min(kernels, key=lambda one: one.cycles(layer.core))
    return _call(layer, kernel, weights, limits)


def product_choices(kernel: object) -> Iterator[Choices]:
    """The choices of the layer whose default kernel is ``kernel``, the default's first."""
    if isinstance(kernel, FpuRowConv2D):
        yield TileChoices()
        others = (
            *row_labels(kernel),
            *(one.label for one in _tiles(kernel.output_channels, False)),
        )
        yield from (TileChoices(label) for label in others if label != kernel.tile.label)
    elif isinstance(kernel, FpuConv2D):
        yield TileChoices()
        for tile in _tiles(kernel.output_channels, kernel.is_dense):
            if tile.label != kernel.tile.label:
                yield TileChoices(tile.label)


def _of_convolution(layer: Layer) -> tuple[Window, Array, Limits] | str:
    """Window, weights [outputs, rows, columns, inputs] and limits."""
    attributes = layer.attributes(Convolution)
    weights, channels = layer.constant(1), layer.source.shape[3]
    if layer.kind == "DEPTHWISE_CONV_2D":
        weights = weights.transpose(3, 1, 2, 0)
    if weights.shape[3] != channels:
        return "its channels are in groups"
    window = window_of_layer(layer, (weights.shape[1], weights.shape[2]))
    refused = refused_weights(window, weights)
    return refused or (window, weights, attributes.limits)


def _tiles(outputs: int, is_dense: bool) -> list[FpuTile]:
    """The tiles for a layer, no wider than it."""
    found = [replace(one, channels=min(one.channels, outputs)) for one in TILES]
    if is_dense:
        found = [FpuTile(1, min(size, outputs)) for size in (MOST_CHANNELS, 12, 8)]
    return list(dict.fromkeys(found))


def _tile_counts(window: Window, depth: int, tile: FpuTile, core: str) -> tuple[int, ...]:
    """How many tiles can be copied at a time: several share weights in the data cache."""
    kept = FLOAT_BYTES * tile.panel_floats(depth) <= _KEPT_BYTES
    if not CORES[core].cache_line_bytes or not kept or tile.pixels == 1:
        return (1,)
    most = _TILES_BYTES // (FLOAT_BYTES * depth * tile.pixels)
    needed = -(-window.output_height * window.output_width // tile.pixels)
    return tuple(dict.fromkeys((max(min(most, needed), 1), 1)))


def _scratch(kernel: FpuConv2D | FpuRowConv2D) -> int:
    return sum(one.size_bytes for one in kernel.scratch)


def _call(
    layer: Layer, kernel: FpuConv2D | FpuRowConv2D, weights: Array, limits: Limits
) -> KernelCall:
    call = layer.portable
    has_geometry = isinstance(kernel, FpuRowConv2D) or kernel.is_gathered
    geometry = (ConstantArgument("geometry", kernel.geometry),) if has_geometry else ()
    arguments = (
        call.arguments[0],
        *geometry,
        ConstantArgument("weights", kernel.packed(weights, float_bias(layer, len(weights)))),
        ConstantArgument("limits", elements(limits_table(limits), kernel.tile.dtype)),
        ScalarArgument("mode", mode_of(limits)),
        call.arguments[-1],
    )
    return replace(call, kernel=kernel, arguments=arguments)
