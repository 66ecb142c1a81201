"""DEPTHWISE_CONV_2D of float32, row by row.

The rows under a row of outputs are in a ring in scratch, with zeros where there is no image. Each
row of the image is copied once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.strategy import Layer, NoChoices, Wish
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.fpu.depthwise_code import (
    DepthwiseTile,
    channels_of,
)
from utvm_deploy.kernels.native.fpu.operands import (
    copying_texts,
    elements,
    float_bias,
    refused_weights,
    window_of_layer,
)
from utvm_deploy.kernels.native.fpu.shared_blocks import limits_table, mode_of
from utvm_deploy.kernels.native.fpu.tiled import Tiled
from utvm_deploy.targets.arm_m.toolchain import has_extremes

_GEOMETRY_WORDS = 8


@dataclass(frozen=True)
class FpuDepthwise(Tiled[DepthwiseTile]):
    """Shape parameters; each channel has one output."""

    window: Window
    channels: int
    tile: DepthwiseTile

    @property
    def name(self) -> str:
        fused = "_fused" if self.tile.fused else ""
        kind = f"depthwise_{self.tile.numbers}"
        return f"{kind}_{self.window.label}_{self.channels}_{self.tile.family}{fused}"

    @property
    def fused(self) -> FpuDepthwise:
        """The same with products and sums that may be rounded at once."""
        return replace(self, tile=replace(self.tile, fused=True))

    @property
    def outputs(self) -> int:
        return self.channels

    @property
    def depth(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]

    @property
    def columns(self) -> int:
        """Columns of the ring: those that whole tiles see."""
        tiles = -(-self.window.output_width // self.tile.pixels)
        return (tiles - 1) * self.tile.pixels * self.tile.stride + self.tile.width

    @property
    def geometry(self) -> Array:
        """``struct utvm_float_ring``."""
        w, pixel = self.window, self._size * self.channels
        values = (w.kernel[0], self.columns * pixel, pixel, w.height, w.width)
        return np.array([*values, w.strides[0], w.top, w.left], dtype=np.int32)

    @property
    def lag(self) -> Lag | None:
        size = self._size * self.channels
        return lag_by_pixels(self.window, size, size, self.window.output_width)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return (self._image, self._geometry, self._panels, self._limits, "mode", self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._ring,)

    def texts(self, core: str) -> tuple[str, ...]:
        tiles = (tile.text(core) for tile, _, _ in self.parts)
        rows = copying_texts(self.tile.dtype, "utvm_float_row", "utvm_float_rows")
        return (*self.tile.helpers, *rows, *tiles)

    def drive(self, c: Driver) -> None:
        image, ring, geometry = self._image, self._ring, self._geometry
        height = self.window.output_height
        with c.loop("batch", self.window.batch) as n, c.loop("row", height) as row:
            fill = (
                f"utvm_{self.tile.numbers}_rows({image.at(n)}, {ring.at()}, {row}, {geometry.at()})"
            )
            slot = c.number("slot", fill)
            for tile, first, groups in self.parts:
                weights = self._panels.at(first * (self.depth + 1))
                output = self._output.at(n, row, 0, first)
                sizes = (slot, self.window.output_width, groups, geometry.at(), "mode")
                source = ring.at(first)
                c.call(tile.function, source, weights, self._limits.at(), output, *sizes)

    @property
    def _image(self) -> Operand:
        return Operand("image", self.window.input_shape(self.channels), self.tile.dtype)

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (_GEOMETRY_WORDS,), "int32")

    @property
    def _ring(self) -> Operand:
        count = self.window.kernel[0] * self.columns * self.channels
        return Operand("ring", (count + self.slack,), self.tile.dtype)

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.channels), self.tile.dtype)


def build_depthwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """DEPTHWISE_CONV_2D of several channels with one output each."""
    if isinstance(refused := NoChoices.read(wish.candidate), str):
        return refused
    if wish.candidate is None and not has_extremes(layer.core):
        return "outputs of few products, which plain C does faster"
    return depthwise_call(layer, _tile)


def _tile(window: Window, channels: int, core: str) -> DepthwiseTile | None:
    group = channels_of(window.kernel[1], core)
    columns, stride = window.kernel[1], window.strides[1]
    return DepthwiseTile(columns, stride, min(group, channels)) if group else None


def depthwise_call(
    layer: Layer, tile_of: Callable[[Window, int, str], DepthwiseTile | None]
) -> KernelCall | str:
    """The call with the tile that a function gives for the window, the channels and the core."""
    weights, channels = layer.constant(1), layer.source.shape[3]
    if weights.shape[3] != channels:
        return "a channel has several outputs"
    window = window_of_layer(layer, (weights.shape[1], weights.shape[2]))
    if window.dilations != (1, 1):
        return "it is dilated"
    if (tile := tile_of(window, channels, layer.core)) is None:
        return f"its kernel has {window.kernel[1]} columns, which do not fit the registers"
    if refused_text := refused_weights(window, weights):
        return refused_text
    kernel = FpuDepthwise(window, channels, tile)
    flat = weights[0].transpose(2, 0, 1)
    limits = layer.attributes(Convolution).limits
    arguments = (
        layer.portable.arguments[0],
        ConstantArgument("geometry", kernel.geometry),
        ConstantArgument("weights", kernel.packed(flat, float_bias(layer, channels))),
        ConstantArgument("limits", elements(limits_table(limits), kernel.tile.dtype)),
        ScalarArgument("mode", mode_of(limits)),
        layer.portable.arguments[-1],
    )
    return replace(layer.portable, kernel=kernel, arguments=arguments)
