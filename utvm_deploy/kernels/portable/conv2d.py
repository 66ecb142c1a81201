"""CONV_2D: padded rows are copied to scratch, then tiles of pixels by channels are accumulated.

The inner loop multiplies the stored int8 inputs by int8 weights. The bias contains the input's zero
point, and border pixels of the row buffer hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.convolution import (
    convolution_call,
    int8_image,
    requantized_func,
    window_of,
)
from utvm_deploy.kernels.portable.tiling import RegisterTile, choose_tile, schedule_accumulation


@dataclass(frozen=True)
class Conv2D:
    """Shape parameters of a convolution; weights are [output channels, rows, columns, inputs]."""

    window: Window
    input_channels: int
    output_channels: int
    tile: RegisterTile | None = None  # None: the tile with the fewest loads
    groups: int = 1  # each has its share of the inputs and of the outputs

    @property
    def name(self) -> str:
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        return f"conv2d_{self.window.label}_{self.input_channels}x{self.output_channels}{groups}"

    @property
    def tile_extents(self) -> tuple[int, int]:
        """The pixels and the channels that a tile divides."""
        return self.window.output_width, self.output_channels

    def prim_func(self) -> Any:
        w, depth = self.window, self.input_channels // self.groups
        image, padded, scalars = int8_image(w, self.input_channels)
        weights = te.placeholder((self.output_channels, *w.kernel, depth), "int8", "weights")
        ky, kx = w.taps()
        ci = te.reduce_axis((0, depth), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            group = o // (self.output_channels // self.groups) if self.groups > 1 else 0
            pixel = padded[n, w.row(y, ky), w.column(x, kx), ci + group * depth]
            weight = weights[o, ky, kx, ci]
            return te.sum(pixel.astype("int32") * weight.astype("int32"), axis=[ky, kx, ci])

        sums = te.compute(w.output_shape(self.output_channels), product, name="conv2d")
        return requantized_func([image, weights], sums, scalars)

    def schedule(self, sch: Any, core: str) -> str:
        w = self.window
        requantized = sch.get_sblock("requantize")
        accumulated = sch.get_sblock("conv2d")
        tile = self.tile or choose_tile(*self.tile_extents)
        n, y, x, o = sch.get_loops(requantized)
        xo, xi = sch.split(x, [None, tile.pixels])
        oo, oi = sch.split(o, [None, tile.channels])
        sch.reorder(n, y, oo, xo, xi, oi)
        sch.compute_at(accumulated, xo, preserve_unit_loops=True)
        *_, pixel, channel, ky, kx, ci = sch.get_loops(accumulated)
        # Without dilation the taps of a row are contiguous: columns and channels are one loop.
        reduction = [ky, sch.fuse(kx, ci)] if w.dilations[1] == self.groups == 1 else [ky, kx, ci]
        schedule_accumulation(sch, accumulated, reduction, [pixel, channel])
        for loop in (xi, oi):
            sch.unroll(loop)
        if w.is_padded:
            w.schedule_pad(sch, y)
        return f"generic C, {tile.pixels} pixels x {tile.channels} channels in registers"


def lower_conv2d(op: Operation) -> KernelCall:
    """CONV_2D."""
    channels = op.source.shape[3]
    weights = op.constant(1)
    outputs, rows, columns, inputs = weights.shape
    window = window_of(op, (rows, columns))
    kernel = Conv2D(window, channels, outputs, groups=channels // inputs)
    return convolution_call(op, kernel, window, weights, weights)


LOWERINGS = {"CONV_2D": lower_conv2d}
