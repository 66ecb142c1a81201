"""What the convolutions share (window, requantization, call), and those of int16 by int8."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import Kernel, KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.packed_weights import weights_label, weights_of_kernel
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    fold_input_offset,
    quantize_multipliers,
    requantize,
    requantize_int64,
)
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.schedules.skeletons import int32s, tables_of

#: Bits of a product of int16 and int8, without its sign.
PRODUCT_BITS = 22
#: Taps of a depthwise window up to which its loops are unrolled.
_MOST_UNROLLED = 25


def window_of(op: Operation, kernel: tuple[int, int]) -> Window:
    """The window of a convolution, with the rows and columns of ``kernel``."""
    a = op.attributes(Convolution)
    source, result = op.source, op.result
    return Window.of(source.shape, result.shape, kernel, a.strides, a.dilations, a.padding)


def requantized_func(
    inputs: Sequence[Any],
    sums: Any,
    scalars: Mapping[str, Any],
    dtype: str = "int8",
    sum_type: str = "int32",
    add: Callable[[Any, Any], Any] = add_wrapping,
) -> Any:
    """The PrimFunc that requantizes ``sums`` of shape [n, y, x, channel] by channel.

    Its parameters are ``inputs``, then bias (of ``sum_type``), multiplier and shift by channel,
    then ``scalars``: the limits low and high, output_zero_point unless that is 0, and others.
    """
    channels = int(sums.shape[3])
    bias = te.placeholder((channels,), sum_type, "bias")
    multiplier, shift = tables_of(channels, "multiplier", "shift")
    scale = requantize_int64 if sum_type == "int64" else requantize

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        total = add(sums[n, y, x, o].astype(sum_type), bias[o])
        scaled = scale(total, multiplier[o], shift[o])
        if "output_zero_point" in scalars:
            scaled = scaled + scalars["output_zero_point"]
        return clamped(scaled, scalars["low"], scalars["high"], dtype)

    output = te.compute(sums.shape, element, name="requantize")
    return te.create_prim_func([*inputs, bias, multiplier, shift, *scalars.values(), output])


def int8_image(window: Window, channels: int) -> tuple[Any, Any, dict[str, Any]]:
    """The input of an int8 convolution, that image with its borders, and the int32 parameters.

    Borders hold the input's zero point. It is a parameter only if there are borders.
    """
    image = te.placeholder(window.input_shape(channels), "int8", "input")
    border = ("input_zero_point",) if window.is_padded else ()
    scalars = int32s((*border, "output_zero_point", "low", "high"))
    if not window.is_padded:
        return image, image, scalars
    return image, window.pad(image, scalars["input_zero_point"].astype("int8")), scalars


def convolution_call(
    op: Operation,
    kernel: Kernel,
    window: Window,
    weights: Array,
    by_output: Array,
) -> KernelCall:
    """The call; ``weights`` are as ``kernel`` wants them, ``by_output`` has the outputs outermost.

    The bias contains the input's zero point, so the kernel multiplies the stored inputs.
    """
    attributes = op.attributes(Convolution)
    zero_point = quantization_of(op.source).zero_point
    outputs = by_output.shape[0]
    multiplier, shift = quantize_multipliers(op.scales(outputs))
    bias = fold_input_offset(op.bias(outputs), by_output, zero_point)
    parameters = {"weights": weights, "bias": bias, "multiplier": multiplier, "shift": shift}
    border = {"input_zero_point": zero_point} if window.is_padded else {}
    return op.call(
        kernel,
        {**parameters, **border, **op.output_parameters(attributes.clamp)},
        macs=math.prod(op.result.shape) * (by_output.size // outputs),
    )


@dataclass(frozen=True)
class Int16x8Conv2D:
    """CONV_2D and DEPTHWISE_CONV_2D; an output channel sees the ``depth`` channels of its group."""

    window: Window
    channels: int
    outputs: int
    depth: int
    is_depthwise: bool
    sum_type: str = "int64"  # or int32, as the file may ask for with a bias of int32
    weights: str = "int8"  # their element type

    @property
    def name(self) -> str:
        kind = "depthwise" if self.is_depthwise else "conv2d"
        bits = "" if self.sum_type == "int64" else "_32"
        channels = f"{self.channels}x{self.outputs}_d{self.depth}"
        return f"{kind}_{self.window.label}_{channels}_16x8{bits}{weights_label(self.weights)}"

    def prim_func(self) -> Any:
        w, outputs = self.window, self.outputs
        image = te.placeholder(w.input_shape(self.channels), "int16", "input")
        shape = (*w.kernel, outputs) if self.is_depthwise else (outputs, *w.kernel, self.depth)
        weights, weight = weights_of_kernel(shape, self.weights)
        padded = w.pad(image, tirx.const(0, "int16"))
        ky, kx = w.taps()
        ci = te.reduce_axis((0, self.depth), "ci")
        # Outputs of one group see the same inputs.
        shared = outputs // (self.channels // self.depth)
        # Products whose sum fits into 32 bits are added in 32 bits.
        count = math.prod(w.kernel) * self.depth
        narrow = "int32" if count < 1 << (31 - PRODUCT_BITS) else self.sum_type

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            channel = o // shared * self.depth + ci
            pixel = padded[n, w.row(y, ky), w.column(x, kx), channel].astype("int32")
            one = weight(ky, kx, o) if self.is_depthwise else weight(o, ky, kx, ci)
            wide = (pixel * one).astype(narrow)
            return te.sum(wide, axis=[ky, kx, ci])

        sums = te.compute(w.output_shape(outputs), product, name="convolution")
        scalars = int32s(("low", "high"))
        return requantized_func(
            [image, weights], sums, scalars, "int16", self.sum_type, operators.add
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
