"""TRANSPOSE_CONV: for each output, the inputs whose windows reach it.

Window row k reaches output row y from input row (y + padding - k) / stride, if that is an integer
and a row of the image. Other taps are skipped. So the kernel needs neither an image with zeros
between its pixels nor an accumulator for each output.
"""

from __future__ import annotations

import math
import operator as operators
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import TransposeConvolution
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    quantize_multipliers,
    short_multiplier,
)
from utvm_deploy.kernels.portable.integers.convolution import requantized_func
from utvm_deploy.kernels.portable.schedules.skeletons import (
    DefaultLoops,
    compute_per_output,
    initialize_apart,
    int32s,
)


@dataclass(frozen=True)
class TransposeConv2D(DefaultLoops):
    """Shape parameters; weights are [output channels, rows, columns, input channels]."""

    image: tuple[int, ...]  # [batch, rows, columns, channels], as the output
    output: tuple[int, ...]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]  # top and left

    bits: int | None = None  # of the sums of int16; None: int8, whose sums have 32 bits

    why: ClassVar[str] = "generic C, one output at a time"

    @property
    def name(self) -> str:
        window = f"{label(self.kernel)}_s{label(self.strides)}_p{label(self.padding)}"
        bits = f"_int16_{self.bits}" if self.bits else ""
        return f"transpose_conv_{window}_{label(self.image)}_{label(self.output)}{bits}"

    def prim_func(self) -> Any:
        _, height, width, inputs = self.image
        dtype, sum_type = "int16" if self.bits else "int8", f"int{self.bits or 32}"
        image = te.placeholder(self.image, dtype, "input")
        weights = te.placeholder((self.output[3], *self.kernel, inputs), "int8", "weights")
        scalars = int32s(("input_zero_point", "output_zero_point", "low", "high"))
        ky = te.reduce_axis((0, self.kernel[0]), "ky")
        kx = te.reduce_axis((0, self.kernel[1]), "kx")
        ci = te.reduce_axis((0, inputs), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            row, reaches_row = self._source(y, ky, 0, height)
            column, reaches_column = self._source(x, kx, 1, width)
            pixel = image[n, row, column, ci].astype("int32") - scalars["input_zero_point"]
            weight = weights[o, ky, kx, ci].astype("int32")
            reaches = tirx.all(reaches_row, reaches_column)
            term = tirx.if_then_else(reaches, pixel * weight, 0)
            return te.sum(term.astype(sum_type), axis=[ky, kx, ci])

        sums = te.compute(self.output, product, name="transpose_conv")
        add = add_wrapping if sum_type == "int32" else operators.add
        return requantized_func([image, weights], sums, scalars, dtype, sum_type, add)

    def schedule(self, sch: Any, core: str) -> str:
        *_, o = sch.get_loops(sch.get_sblock("requantize"))
        compute_per_output(sch, o, "transpose_conv")
        initialize_apart(sch, "transpose_conv", loops=3)
        return self.why

    def _source(self, at: Any, tap: Any, axis: int, extent: int) -> tuple[Any, Any]:
        """The input row or column that a tap reads, and whether there is one."""
        place = at + self.padding[axis] - tap
        stride = self.strides[axis]
        source = tirx.truncdiv(place, stride)
        divides = tirx.truncmod(place, stride) == 0
        return source, tirx.all(place >= 0, divides, source < extent)


def lower_transpose_conv(op: Operation) -> KernelCall:
    """TRANSPOSE_CONV; sums of int16 have 64 bits, or 32 as a bias of int32 asks for."""
    attributes, source, weights = op.attributes(TransposeConvolution), op.source, op.constant(1)
    outputs, rows, columns, _ = weights.shape
    sum_bits = 32 if attributes.sums_in_32_bits else 64
    bits = sum_bits if source.dtype == "int16" else None
    window = (rows, columns), attributes.strides, attributes.padding
    kernel = TransposeConv2D(source.shape, op.result.shape, *window, bits)
    bias = op.bias(outputs).astype(f"int{bits or 32}")
    multiplier, shift = quantize_multipliers(op.scales(outputs))
    if bits == 64:
        multiplier = np.array([short_multiplier(int(m)) for m in multiplier], np.int32)
    tables = {"weights": weights, "bias": bias, "multiplier": multiplier, "shift": shift}
    scalars = {"input_zero_point": quantization_of(source).zero_point}
    scalars |= op.output_parameters(attributes.clamp)
    macs = math.prod(source.shape) * rows * columns * outputs
    return op.call(kernel, {**tables, **scalars}, macs=macs)


LOWERINGS = {"TRANSPOSE_CONV": lower_transpose_conv}
