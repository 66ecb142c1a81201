"""CONV_2D and DEPTHWISE_CONV_2D of int16 by int8 weights, one output at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.requantization import (
    clamped,
    requantize,
    requantize_int64,
)
from utvm_deploy.kernels.contract.window import Window

#: Bits of a product of int16 and int8, without its sign.
PRODUCT_BITS = 22
#: Taps of a depthwise window that are all written out.
_MOST_UNROLLED = 25


@dataclass(frozen=True)
class Int16x8Conv2D:
    """Both kinds of convolution; an output channel sees ``depth`` channels from its own group."""

    window: Window
    channels: int
    outputs: int
    depth: int
    is_depthwise: bool

    @property
    def name(self) -> str:
        kind = "depthwise" if self.is_depthwise else "conv2d"
        return f"{kind}_{self.window.label}_{self.channels}x{self.outputs}_d{self.depth}_16x8"

    def prim_func(self) -> Any:
        w = self.window
        image = te.placeholder((w.batch, w.height, w.width, self.channels), "int16", "input")
        weights_shape = (
            (*w.kernel, self.outputs)
            if self.is_depthwise
            else (self.outputs, *w.kernel, self.depth)
        )
        weights = te.placeholder(weights_shape, "int8", "weights")
        bias = te.placeholder((self.outputs,), self._sum_type, "bias")
        multiplier, shift = (
            te.placeholder((self.outputs,), "int32", name) for name in ("multiplier", "shift")
        )
        low, high = te.var("low", "int32"), te.var("high", "int32")
        padded = w.pad(image, tirx.const(0, "int16"))
        ky = te.reduce_axis((0, w.kernel[0]), "ky")
        kx = te.reduce_axis((0, w.kernel[1]), "kx")
        ci = te.reduce_axis((0, self.depth), "ci")
        # Outputs of one group see the same inputs.
        shared = self.outputs // (self.channels // self.depth)

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            channel = o // shared * self.depth + ci
            pixel = padded[n, w.row(y, ky), w.column(x, kx), channel].astype("int32")
            weight = weights[ky, kx, o] if self.is_depthwise else weights[o, ky, kx, ci]
            wide = (pixel * weight.astype("int32")).astype(self._product_sum_type)
            return te.sum(wide, axis=[ky, kx, ci])

        shape = (w.batch, w.output_height, w.output_width, self.outputs)
        sums = te.compute(shape, product, name="convolution")
        output = te.compute(
            shape,
            lambda n, y, x, o: clamped(
                self._scaled(
                    sums[n, y, x, o].astype(self._sum_type) + bias[o], multiplier[o], shift[o]
                ),
                low,
                high,
                "int16",
            ),
            name="requantize",
        )
        return te.create_prim_func([image, weights, bias, multiplier, shift, low, high, output])

    def schedule(self, sch: Any, core: str) -> str:
        _, y, _, o = sch.get_loops(sch.get_sblock("requantize"))
        block = sch.get_sblock("convolution")
        sch.compute_at(block, o, preserve_unit_loops=True)
        reduction = sch.get_loops(block)[-3:]
        sch.decompose_reduction(block, reduction[0])
        if self.is_depthwise and math.prod(self.window.kernel) <= _MOST_UNROLLED:
            for loop in reduction:
                sch.unroll(loop)
        if self.window.is_padded:
            self.window.schedule_pad(sch, y)
        return f"generic C, one output at a time in {self._sum_type[3:]} bits"

    @property
    def _sum_type(self) -> str:
        return "int64"

    @property
    def _product_sum_type(self) -> str:
        """Of the products alone: 32 bits where so few cannot overflow them."""
        count = math.prod(self.window.kernel) * self.depth
        return "int32" if count < 1 << (31 - PRODUCT_BITS) else self._sum_type

    def _scaled(self, total: Any, multiplier: Any, shift: Any) -> Any:
        return requantize_int64(total, multiplier, shift)


@dataclass(frozen=True)
class ShortSumConv2D(Int16x8Conv2D):
    """A convolution of int16 that sums up in 32 bits, as a bias of int32 asks for."""

    @property
    def name(self) -> str:
        return f"{super().name}_32"

    @property
    def _sum_type(self) -> str:
        return "int32"

    def _scaled(self, total: Any, multiplier: Any, shift: Any) -> Any:
        return requantize(total, multiplier, shift)
