"""CONV_2D: padded rows are copied to scratch, then tiles of pixels by channels are accumulated.

The inner loop multiplies raw int8 inputs by int8 weights: the input's zero point is folded into the
bias, and border pixels of the row buffer hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import ConstantArgument, KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.operands import (
    bias_of,
    constant_of,
    effective_scales,
    input_of,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.quantize import (
    add_wrapping,
    clamp_int8,
    fold_input_offset,
    quantize_multipliers,
    requantize,
)
from utvm_deploy.kernels.tiling import Tile, choose_tile, schedule_accumulation
from utvm_deploy.kernels.window import Window


@dataclass(frozen=True)
class Conv2D:
    """Shape parameters of a convolution; weights are [output channels, rows, columns, inputs]."""

    window: Window
    input_channels: int
    output_channels: int
    tile: Tile | None = None  # None: what promises the fewest loads
    groups: int = 1  # each with its share of the inputs and of the outputs

    @property
    def name(self) -> str:
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        return f"conv2d_{self.window.label}_{self.input_channels}x{self.output_channels}{groups}"

    def prim_func(self) -> Any:
        w = self.window
        image = te.placeholder((w.batch, w.height, w.width, self.input_channels), "int8", "input")
        weights = te.placeholder(
            (self.output_channels, *w.kernel, self.input_channels // self.groups), "int8", "weights"
        )
        bias = te.placeholder((self.output_channels,), "int32", "bias")
        multiplier = te.placeholder((self.output_channels,), "int32", "multiplier")
        shift = te.placeholder((self.output_channels,), "int32", "shift")
        output_zero_point, low, high = (
            te.var(v, "int32") for v in ("output_zero_point", "low", "high")
        )
        border = te.var("input_zero_point", "int32")

        padded = w.pad(image, border.astype("int8"))
        ky = te.reduce_axis((0, w.kernel[0]), "ky")
        kx = te.reduce_axis((0, w.kernel[1]), "kx")
        depth = self.input_channels // self.groups
        ci = te.reduce_axis((0, depth), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            group = o // (self.output_channels // self.groups) if self.groups > 1 else 0
            pixel = padded[n, w.row(y, ky), w.column(x, kx), ci + group * depth]
            weight = weights[o, ky, kx, ci]
            return te.sum(pixel.astype("int32") * weight.astype("int32"), axis=[ky, kx, ci])

        output_shape = (w.batch, w.output_height, w.output_width, self.output_channels)
        accumulated = te.compute(output_shape, product, name="conv2d")
        output = te.compute(
            output_shape,
            lambda n, y, x, o: clamp_int8(
                requantize(add_wrapping(accumulated[n, y, x, o], bias[o]), multiplier[o], shift[o])
                + output_zero_point,
                low,
                high,
            ),
            name="requantize",
        )
        scalars = [border, output_zero_point, low, high]
        if not w.is_padded:
            scalars = scalars[1:]
        return te.create_prim_func([image, weights, bias, multiplier, shift, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        w = self.window
        requantized = sch.get_sblock("requantize")
        accumulated = sch.get_sblock("conv2d")
        tile = self.tile or choose_tile(w.output_width, self.output_channels)
        n, y, x, o = sch.get_loops(requantized)
        xo, xi = sch.split(x, [None, tile.pixels])
        oo, oi = sch.split(o, [None, tile.channels])
        sch.reorder(n, y, oo, xo, xi, oi)
        sch.compute_at(accumulated, xo, preserve_unit_loops=True)
        *_, pixel, channel, ky, kx, ci = sch.get_loops(accumulated)
        # Without dilation the taps of a row lie side by side: columns and channels are one loop.
        reduction = [ky, sch.fuse(kx, ci)] if w.dilations[1] == self.groups == 1 else [ky, kx, ci]
        schedule_accumulation(sch, accumulated, reduction, [pixel, channel])
        for loop in (xi, oi):
            sch.unroll(loop)
        if w.is_padded:
            w.schedule_pad(sch, y)
        return f"generic C, {tile.pixels} pixels x {tile.channels} channels in registers"


def lower_conv2d(graph: Graph, operator: Operator) -> KernelCall:
    """CONV_2D."""
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    image, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    outputs, rows, columns, inputs = weights.shape
    window = Window.of(
        source.shape,
        result.shape,
        (rows, columns),
        attributes.strides,
        attributes.dilations,
        attributes.padding,
    )
    channels = source.shape[3]
    kernel = Conv2D(window, channels, outputs, groups=channels // inputs)
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    zero_point = quantization_of(source).zero_point
    border = [ScalarArgument("input_zero_point", zero_point)] if window.is_padded else []
    return KernelCall(
        kernel,
        (
            TensorArgument(image),
            ConstantArgument("weights", weights),
            ConstantArgument(
                "bias", fold_input_offset(bias_of(graph, operator, outputs), weights, zero_point)
            ),
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
            *border,
            ScalarArgument("output_zero_point", quantization_of(result).zero_point),
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
        macs=int(np.prod(result.shape)) * rows * columns * inputs,
    )
