"""DEPTHWISE_CONV_2D: one channel's weights stay in registers while its row of pixels is computed.

As in CONV_2D, inputs are multiplied raw (zero point folded into the bias) and rows with borders are
copied to scratch.
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
from utvm_deploy.kernels.tiling import MAX_ACCUMULATORS
from utvm_deploy.kernels.window import Window

# More taps than these would neither fit in registers nor keep the code small.
_MAX_UNROLLED_TAPS = 12


@dataclass(frozen=True)
class DepthwiseConv2D:
    """Shape parameters of a depthwise convolution; weights are [rows, columns, outputs]."""

    window: Window
    channels: int  # of the input
    depth_multiplier: int

    @property
    def name(self) -> str:
        factor = f"x{self.depth_multiplier}" if self.depth_multiplier > 1 else ""
        return f"depthwise_{self.window.label}_{self.channels}{factor}"

    def prim_func(self) -> Any:
        w = self.window
        outputs = self.channels * self.depth_multiplier
        image = te.placeholder((w.batch, w.height, w.width, self.channels), "int8", "input")
        weights = te.placeholder((*w.kernel, outputs), "int8", "weights")
        bias = te.placeholder((outputs,), "int32", "bias")
        multiplier = te.placeholder((outputs,), "int32", "multiplier")
        shift = te.placeholder((outputs,), "int32", "shift")
        border = te.var("input_zero_point", "int32")
        scalars = [te.var(name, "int32") for name in ("output_zero_point", "low", "high")]
        output_zero_point, low, high = scalars

        padded = w.pad(image, border.astype("int8"))
        ky = te.reduce_axis((0, w.kernel[0]), "ky")
        kx = te.reduce_axis((0, w.kernel[1]), "kx")
        output_shape = (w.batch, w.output_height, w.output_width, outputs)

        def product(n: Any, y: Any, x: Any, c: Any) -> Any:
            pixel = padded[n, w.row(y, ky), w.column(x, kx), c // self.depth_multiplier]
            return te.sum(pixel.astype("int32") * weights[ky, kx, c].astype("int32"), axis=[ky, kx])

        accumulated = te.compute(output_shape, product, name="depthwise")
        output = te.compute(
            output_shape,
            lambda n, y, x, c: clamp_int8(
                requantize(add_wrapping(accumulated[n, y, x, c], bias[c]), multiplier[c], shift[c])
                + output_zero_point,
                low,
                high,
            ),
            name="requantize",
        )
        if w.is_padded:
            scalars = [border, *scalars]
        return te.create_prim_func([image, weights, bias, multiplier, shift, *scalars, output])

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
        if taps <= _MAX_UNROLLED_TAPS:
            weights = sch.cache_read(accumulated, 2, "global")
            sch.compute_at(weights, c, preserve_unit_loops=True)
            for loop in (*sch.get_loops(weights)[-3:-1], ky, kx):
                sch.unroll(loop)
            why = f"generic C, {taps} weights in registers along a row"
        elif w.kernel[1] <= MAX_ACCUMULATORS:
            sch.unroll(kx)
        if w.is_padded:
            w.schedule_pad(sch, y)
        return why


def lower_depthwise(graph: Graph, operator: Operator) -> KernelCall:
    """DEPTHWISE_CONV_2D; the file's weights are [1, rows, columns, outputs]."""
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    image, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    _, rows, columns, outputs = weights.shape
    window = Window.of(
        source.shape,
        result.shape,
        (rows, columns),
        attributes.strides,
        attributes.dilations,
        attributes.padding,
    )
    kernel = DepthwiseConv2D(window, source.shape[3], outputs // source.shape[3])
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    zero_point = quantization_of(source).zero_point
    bias = fold_input_offset(
        bias_of(graph, operator, outputs), np.moveaxis(weights, 3, 0), zero_point
    )
    border = [ScalarArgument("input_zero_point", zero_point)] if window.is_padded else []
    return KernelCall(
        kernel,
        (
            TensorArgument(image),
            ConstantArgument("weights", weights[0]),
            ConstantArgument("bias", bias),
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
            *border,
            ScalarArgument("output_zero_point", quantization_of(result).zero_point),
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
        macs=int(np.prod(result.shape)) * rows * columns,
    )
