"""CONV_2D and DEPTHWISE_CONV_2D of int8, which multiply the stored inputs by the weights.

The bias contains the input's zero point. Rows with borders are copied to scratch, where the border
pixels hold the zero point. CONV_2D accumulates tiles of pixels by channels. DEPTHWISE_CONV_2D keeps
one channel's weights in registers while its row of pixels is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.packed_weights import (
    is_packed,
    weights_label,
    weights_of_kernel,
    weights_table,
)
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.integers.convolution import (
    convolution_call,
    int8_image,
    requantized_func,
    window_of,
)
from utvm_deploy.kernels.portable.schedules.tiling import (
    MAX_ACCUMULATORS,
    RegisterTile,
    choose_tile,
    schedule_accumulation,
)

# More weights do not fit into registers, and unrolled loops over them are large code.
_MAX_UNROLLED_TAPS = 12


@dataclass(frozen=True)
class Conv2D:
    """Shape parameters of a convolution; weights are [output channels, rows, columns, inputs]."""

    window: Window
    input_channels: int
    output_channels: int
    tile: RegisterTile | None = None  # None: the tile with the fewest loads
    groups: int = 1  # each has its share of the inputs and of the outputs
    weights: str = "int8"  # their element type

    @property
    def name(self) -> str:
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        channels = f"{self.input_channels}x{self.output_channels}{groups}"
        return f"conv2d_{self.window.label}_{channels}{weights_label(self.weights)}"

    @property
    def tile_extents(self) -> tuple[int, int]:
        """The pixels and the channels that a tile divides."""
        return self.window.output_width, self.output_channels

    def prim_func(self) -> Any:
        w, depth = self.window, self.input_channels // self.groups
        image, padded, scalars = int8_image(w, self.input_channels)
        shape = (self.output_channels, *w.kernel, depth)
        weights, weight = weights_of_kernel(shape, self.weights)
        ky, kx = w.taps()
        ci = te.reduce_axis((0, depth), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            group = o // (self.output_channels // self.groups) if self.groups > 1 else 0
            pixel = padded[n, w.row(y, ky), w.column(x, kx), ci + group * depth]
            return te.sum(pixel.astype("int32") * weight(o, ky, kx, ci), axis=[ky, kx, ci])

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


@dataclass(frozen=True)
class DepthwiseConv2D:
    """Shape parameters of a depthwise convolution; weights are [rows, columns, outputs]."""

    window: Window
    channels: int  # of the input
    depth_multiplier: int
    weights: str = "int8"  # their element type

    @property
    def name(self) -> str:
        factor = f"x{self.depth_multiplier}" if self.depth_multiplier > 1 else ""
        channels = f"{self.channels}{factor}{weights_label(self.weights)}"
        return f"depthwise_{self.window.label}_{channels}"

    def prim_func(self) -> Any:
        w, outputs = self.window, self.channels * self.depth_multiplier
        image, padded, scalars = int8_image(w, self.channels)
        weights, weight = weights_of_kernel((*w.kernel, outputs), self.weights)
        if is_packed(self.weights):
            unpacked = te.compute((*w.kernel, outputs), weight, name="unpacked")
            weight = lambda *index: unpacked[index]  # noqa: E731
        ky, kx = w.taps()

        def product(n: Any, y: Any, x: Any, c: Any) -> Any:
            pixel = padded[n, w.row(y, ky), w.column(x, kx), c // self.depth_multiplier]
            return te.sum(pixel.astype("int32") * weight(ky, kx, c), axis=[ky, kx])

        sums = te.compute(w.output_shape(outputs), product, name="depthwise")
        return requantized_func([image, weights], sums, scalars)

    def schedule(self, sch: Any, core: str) -> str:
        w = self.window
        n, y, x, c = sch.get_loops(sch.get_sblock("requantize"))
        sch.reorder(n, y, c, x)
        accumulated = sch.get_sblock("depthwise")
        sch.compute_at(accumulated, x, preserve_unit_loops=True)
        *_, ky, kx = sch.get_loops(accumulated)
        sch.decompose_reduction(accumulated, ky)
        taps = w.kernel[0] * w.kernel[1]
        why = "generic C, one output at a time"
        if is_packed(self.weights):
            weights = sch.get_sblock("unpacked")
        elif taps <= _MAX_UNROLLED_TAPS:
            weights = sch.cache_read(accumulated, 2, "global")
        if taps <= _MAX_UNROLLED_TAPS:
            sch.compute_at(weights, c, preserve_unit_loops=True)
            for loop in (*sch.get_loops(weights)[-3:-1], ky, kx):
                sch.unroll(loop)
            why = f"generic C, {taps} weights in registers along a row"
        else:
            if is_packed(self.weights):
                sch.compute_inline(weights)
            if w.kernel[1] <= MAX_ACCUMULATORS:
                sch.unroll(kx)
        if w.is_padded:
            w.schedule_pad(sch, y)
        return why


def lower_conv2d(op: Operation) -> KernelCall:
    """CONV_2D."""
    channels = op.source.shape[3]
    weights = op.constant(1)
    outputs, rows, columns, inputs = weights.shape
    window = window_of(op, (rows, columns))
    dtype = op.input(1).dtype
    kernel = Conv2D(window, channels, outputs, groups=channels // inputs, weights=dtype)
    return convolution_call(op, kernel, window, weights_table(weights, dtype), weights)


def lower_depthwise(op: Operation) -> KernelCall:
    """DEPTHWISE_CONV_2D; the file's weights are [1, rows, columns, outputs]."""
    channels = op.source.shape[3]
    weights = op.constant(1)
    _, rows, columns, outputs = weights.shape
    window = window_of(op, (rows, columns))
    dtype = op.input(1).dtype
    kernel = DepthwiseConv2D(window, channels, outputs // channels, dtype)
    by_output = np.moveaxis(weights, 3, 0)
    return convolution_call(op, kernel, window, weights_table(weights[0], dtype), by_output)


LOWERINGS = {"CONV_2D": lower_conv2d, "DEPTHWISE_CONV_2D": lower_depthwise}
