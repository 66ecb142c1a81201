"""CONV_2D and DEPTHWISE_CONV_2D of float32.

The order of additions is that of LiteRT's reference kernels: one sum that begins with 0, by rows,
columns and channels of the window, then the bias. So results have equal bits.

The reference skips positions outside of the image. A border of zeros has the same result if all
weights are finite: a product with 0 is 0 or -0. To add either changes no sum, because a sum that
begins with 0 never becomes -0. For other weights, the kernel skips those positions, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.integers.convolution import window_of
from utvm_deploy.kernels.portable.schedules.float_values import float_bias, limited, limits_label
from utvm_deploy.kernels.portable.schedules.tiling import (
    MAX_FLOAT_ACCUMULATORS,
    RegisterTile,
    choose_tile,
    divisors,
    schedule_accumulation,
)

# The largest channel block of a depthwise convolution, and the most taps that are unrolled.
_DEPTHWISE_CHANNELS = 4
_DEPTHWISE_PIXELS = 4
_MOST_UNROLLED = 12


def float_image(window: Window, channels: int, skips: bool) -> tuple[Any, Any]:
    """The input of a window, and that image with a border of zeros unless the kernel ``skips``."""
    image = te.placeholder(window.input_shape(channels), "float32", "input")
    return image, image if skips else window.pad(image, tirx.const(0.0, "float32"))


def skipped(window: Window, row: Any, column: Any, value: Any) -> Any:
    """``value`` of the image without a border; 0 if row or column are not inside."""
    inside = tirx.all(row >= 0, row < window.height, column >= 0, column < window.width)
    return tirx.if_then_else(inside, value, tirx.const(0.0, "float32"))


@dataclass(frozen=True)
class FloatConv2D:
    """CONV_2D; weights are [block, row, column, input channel, channel of the block].

    A block has the output channels of a register tile, so that the tile reads its weights in one
    sequence.
    """

    window: Window
    input_channels: int
    output_channels: int
    limits: Limits
    groups: int = 1
    skips: bool = False  # positions outside of the image, instead of a border of zeros

    @property
    def name(self) -> str:
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        skips = "_skips" if self.skips else ""
        channels = f"{self.input_channels}x{self.output_channels}"
        limits = limits_label(self.limits)
        return f"conv2d_float_{self.window.label}_{channels}{groups}{skips}{limits}"

    @property
    def tile(self) -> RegisterTile:
        """The outputs that are computed together."""
        width, channels = self.window.output_width, self.output_channels // self.groups
        return choose_tile(width, channels, MAX_FLOAT_ACCUMULATORS)

    def stored(self, weights: Array) -> Array:
        """The file's weights, [output channel, row, column, input channel], as the kernel reads."""
        blocks = weights.reshape(-1, self.tile.channels, *weights.shape[1:])
        return np.ascontiguousarray(np.moveaxis(blocks, 1, -1))

    def prim_func(self) -> Any:
        w, block = self.window, self.tile.channels
        depth, per_group = self.input_channels // self.groups, self.output_channels // self.groups
        image, padded = float_image(w, self.input_channels, self.skips)
        shape = (self.output_channels // block, *w.kernel, depth, block)
        weights = te.placeholder(shape, "float32", "weights")
        bias = te.placeholder((self.output_channels,), "float32", "bias")
        ky, kx = w.taps()
        ci = te.reduce_axis((0, depth), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            channel = ci + (o // per_group * depth if self.groups > 1 else 0)
            row, column = w.row(y, ky), w.column(x, kx)
            weight = weights[o // block, ky, kx, ci, o % block]
            if not self.skips:
                return te.sum(padded[n, row, column, channel] * weight, axis=[ky, kx, ci])
            row, column = row - w.top, column - w.left
            value = image[n, row, column, channel] * weight
            return te.sum(skipped(w, row, column, value), axis=[ky, kx, ci])

        sums = te.compute(w.output_shape(self.output_channels), product, name="sums")
        output = te.compute(
            sums.shape,
            lambda n, y, x, o: limited(sums[n, y, x, o] + bias[o], self.limits),
            name="output",
        )
        return te.create_prim_func([image, weights, bias, output])

    def schedule(self, sch: Any, core: str) -> str:
        w, tile = self.window, self.tile
        n, y, x, o = sch.get_loops(sch.get_sblock("output"))
        xo, xi = sch.split(x, [None, tile.pixels])
        oo, oi = sch.split(o, [None, tile.channels])
        sch.reorder(n, y, oo, xo, xi, oi)
        sums = sch.get_sblock("sums")
        sch.compute_at(sums, xo, preserve_unit_loops=True)
        *_, pixel, channel, ky, kx, ci = sch.get_loops(sums)
        # Without dilation the taps of a row are contiguous: columns and channels are one loop.
        is_one_loop = w.dilations[1] == self.groups == 1 and not self.skips
        reduction = [ky, sch.fuse(kx, ci)] if is_one_loop else [ky, kx, ci]
        schedule_accumulation(sch, sums, reduction, [pixel, channel])
        for loop in (xi, oi):
            sch.unroll(loop)
        if w.is_padded and not self.skips:
            w.schedule_pad(sch, y)
        return f"generic C, {tile.pixels} pixels x {tile.channels} channels in registers"


@dataclass(frozen=True)
class FloatDepthwiseConv2D:
    """DEPTHWISE_CONV_2D; weights are [row, column, output channel]."""

    window: Window
    channels: int  # of the input
    depth_multiplier: int
    limits: Limits
    skips: bool = False

    @property
    def name(self) -> str:
        factor = f"x{self.depth_multiplier}" if self.depth_multiplier > 1 else ""
        skips = "_skips" if self.skips else ""
        limits = limits_label(self.limits)
        return f"depthwise_float_{self.window.label}_{self.channels}{factor}{skips}{limits}"

    def prim_func(self) -> Any:
        w, outputs = self.window, self.channels * self.depth_multiplier
        image, padded = float_image(w, self.channels, self.skips)
        weights = te.placeholder((*w.kernel, outputs), "float32", "weights")
        bias = te.placeholder((outputs,), "float32", "bias")
        ky, kx = w.taps()

        def product(n: Any, y: Any, x: Any, c: Any) -> Any:
            row, column = w.row(y, ky), w.column(x, kx)
            channel, weight = c // self.depth_multiplier, weights[ky, kx, c]
            if not self.skips:
                return te.sum(padded[n, row, column, channel] * weight, axis=[ky, kx])
            row, column = row - w.top, column - w.left
            value = image[n, row, column, channel] * weight
            return te.sum(skipped(w, row, column, value), axis=[ky, kx])

        sums = te.compute(w.output_shape(outputs), product, name="sums")
        output = te.compute(
            sums.shape,
            lambda n, y, x, c: limited(sums[n, y, x, c] + bias[c], self.limits),
            name="output",
        )
        return te.create_prim_func([image, weights, bias, output])

    def schedule(self, sch: Any, core: str) -> str:
        w, outputs = self.window, self.channels * self.depth_multiplier
        pixels = max(d for d in divisors(w.output_width) if d <= _DEPTHWISE_PIXELS)
        channels = max(d for d in divisors(outputs) if d <= _DEPTHWISE_CHANNELS)
        n, y, x, c = sch.get_loops(sch.get_sblock("output"))
        xo, xi = sch.split(x, [None, pixels])
        co, ci = sch.split(c, [None, channels])
        sch.reorder(n, y, xo, co, xi, ci)
        sums = sch.get_sblock("sums")
        sch.compute_at(sums, co, preserve_unit_loops=True)
        *_, pixel, channel, ky, kx = sch.get_loops(sums)
        schedule_accumulation(sch, sums, [ky, kx], [pixel, channel])
        if w.kernel[1] <= _MOST_UNROLLED and not self.skips:
            sch.unroll(kx)
        for loop in (xi, ci):
            sch.unroll(loop)
        if w.is_padded and not self.skips:
            w.schedule_pad(sch, y)
        return f"generic C, {pixels} pixels x {channels} channels in registers"


def lower_convolution(op: Operation) -> KernelCall:
    """CONV_2D."""
    channels, weights = op.source.shape[3], op.constant(1)
    outputs, rows, columns, depth = weights.shape
    window = _as_row(window_of(op, (rows, columns)))
    limits = op.attributes(Convolution).limits
    skips = must_skip(window, weights)
    kernel = FloatConv2D(window, channels, outputs, limits, channels // depth, skips)
    parameters = {"weights": kernel.stored(weights), "bias": float_bias(op, outputs)}
    macs = math.prod(op.result.shape) * rows * columns * depth
    return op.call(kernel, parameters, macs=macs)


def lower_depthwise(op: Operation) -> KernelCall:
    """DEPTHWISE_CONV_2D; the file's weights are [1, rows, columns, outputs]."""
    channels, weights, a = op.source.shape[3], op.constant(1), op.attributes(Convolution)
    _, rows, columns, outputs = weights.shape
    window = window_of(op, (rows, columns))
    multiplier = outputs // channels
    skips = must_skip(window, weights)
    kernel = FloatDepthwiseConv2D(window, channels, multiplier, a.limits, skips)
    parameters = {"weights": weights[0], "bias": float_bias(op, outputs)}
    return op.call(kernel, parameters, macs=math.prod(op.result.shape) * rows * columns)


def must_skip(window: Window, weights: Array) -> bool:
    """Whether a border of zeros would change results: 0 times infinity is not a number."""
    return window.is_padded and not bool(np.isfinite(weights).all())


def _as_row(w: Window) -> Window:
    """A window of one pixel over a single row with all pixels, which has more register tiles."""
    if (w.kernel, w.strides, w.is_padded) != ((1, 1), (1, 1), False):
        return w
    pixels = w.batch * w.height * w.width
    return replace(
        w, batch=1, height=1, width=pixels, output_height=1, output_width=pixels, dilations=(1, 1)
    )


FLOAT_LOWERINGS: Mapping[str, Lowering] = {
    "CONV_2D": lower_convolution,
    "DEPTHWISE_CONV_2D": lower_depthwise,
}
