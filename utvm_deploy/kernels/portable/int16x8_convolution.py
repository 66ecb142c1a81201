"""CONV_2D and DEPTHWISE_CONV_2D of int16 by int8 weights, one output at a time."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.convolution import requantized_func
from utvm_deploy.kernels.portable.skeletons import int32s

#: Bits of a product of int16 and int8, without its sign.
PRODUCT_BITS = 22
#: Taps of a depthwise window up to which its loops are unrolled.
_MOST_UNROLLED = 25


@dataclass(frozen=True)
class Int16x8Conv2D:
    """Both kinds of convolution; an output channel sees ``depth`` channels of its own group."""

    window: Window
    channels: int
    outputs: int
    depth: int
    is_depthwise: bool
    sum_type: str = "int64"  # or int32, as the file may ask for with a bias of int32

    @property
    def name(self) -> str:
        kind = "depthwise" if self.is_depthwise else "conv2d"
        bits = "" if self.sum_type == "int64" else "_32"
        channels = f"{self.channels}x{self.outputs}_d{self.depth}"
        return f"{kind}_{self.window.label}_{channels}_16x8{bits}"

    def prim_func(self) -> Any:
        w, outputs = self.window, self.outputs
        image = te.placeholder(w.input_shape(self.channels), "int16", "input")
        shape = (*w.kernel, outputs) if self.is_depthwise else (outputs, *w.kernel, self.depth)
        weights = te.placeholder(shape, "int8", "weights")
        padded = w.pad(image, tirx.const(0, "int16"))
        ky, kx = w.taps()
        ci = te.reduce_axis((0, self.depth), "ci")
        # Outputs of one group see the same inputs.
        shared = outputs // (self.channels // self.depth)
        # So few products cannot overflow 32 bits.
        count = math.prod(w.kernel) * self.depth
        narrow = "int32" if count < 1 << (31 - PRODUCT_BITS) else self.sum_type

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            channel = o // shared * self.depth + ci
            pixel = padded[n, w.row(y, ky), w.column(x, kx), channel].astype("int32")
            weight = weights[ky, kx, o] if self.is_depthwise else weights[o, ky, kx, ci]
            wide = (pixel * weight.astype("int32")).astype(narrow)
            return te.sum(wide, axis=[ky, kx, ci])

        sums = te.compute(w.output_shape(outputs), product, name="convolution")
        scalars = int32s(("low", "high"))
        return requantized_func(
            [image, weights], sums, scalars, "int16", self.sum_type, operator.add
        )

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
        return f"generic C, one output at a time in {self.sum_type[3:]} bits"
