"""TRANSPOSE_CONV: for each output, the inputs whose windows reach it.

An output row y is reached by window row k from input row (y + padding - k) / stride, where that
divides and lies within the image. Taps that do not are skipped, so there is neither an image with
zeros between its pixels nor an accumulator for each output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import TransposeConvolution
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    constant_of,
    effective_scales,
    input_of,
    operand_of,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    quantize_multipliers,
    requantize,
    requantize_int64,
    short_multiplier,
)


@dataclass(frozen=True)
class TransposeConv2D:
    """Shape parameters; weights are [output channels, rows, columns, input channels]."""

    image: tuple[int, int, int, int]
    output: tuple[int, int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]  # top and left

    @property
    def name(self) -> str:
        return (
            f"transpose_conv_{label(self.kernel)}_s{label(self.strides)}_p{label(self.padding)}"
            f"_{label(self.image)}_{label(self.output)}"
        )

    def prim_func(self) -> Any:
        _, height, width, inputs = self.image
        outputs = self.output[3]
        image = te.placeholder(self.image, self._dtype, "input")
        weights = te.placeholder((outputs, *self.kernel, inputs), "int8", "weights")
        bias = te.placeholder((outputs,), self._sum_type, "bias")
        multiplier, shift = (
            te.placeholder((outputs,), "int32", name) for name in ("multiplier", "shift")
        )
        names = ("input_zero_point", "output_zero_point", "low", "high")
        scalars = [te.var(name, "int32") for name in names]
        zero_point, output_zero_point, low, high = scalars
        ky = te.reduce_axis((0, self.kernel[0]), "ky")
        kx = te.reduce_axis((0, self.kernel[1]), "kx")
        ci = te.reduce_axis((0, inputs), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            row, reached_row = self._source(y, ky, 0, height)
            column, reached_column = self._source(x, kx, 1, width)
            pixel = image[n, row, column, ci].astype("int32") - zero_point
            weight = weights[o, ky, kx, ci].astype("int32")
            reached = tirx.all(reached_row, reached_column)
            term = tirx.if_then_else(reached, pixel * weight, 0)
            return te.sum(term.astype(self._sum_type), axis=[ky, kx, ci])

        accumulated = te.compute(self.output, product, name="transpose_conv")
        output = te.compute(
            self.output,
            lambda n, y, x, o: clamped(
                self._scaled(accumulated[n, y, x, o], bias[o], multiplier[o], shift[o])
                + output_zero_point,
                low,
                high,
                self._dtype,
            ),
            name="requantize",
        )
        return te.create_prim_func([image, weights, bias, multiplier, shift, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        *_, o = sch.get_loops(sch.get_sblock("requantize"))
        block = sch.get_sblock("transpose_conv")
        sch.compute_at(block, o)
        sch.decompose_reduction(block, sch.get_loops(block)[-3])
        return "generic C, one output at a time"

    @property
    def _dtype(self) -> str:
        return "int8"

    @property
    def _sum_type(self) -> str:
        return "int32"

    def _scaled(self, total: Any, bias: Any, multiplier: Any, shift: Any) -> Any:
        return requantize(add_wrapping(total, bias), multiplier, shift)

    def _source(self, at: Any, tap: Any, axis: int, extent: int) -> tuple[Any, Any]:
        """The input row or column that a tap reads, and whether there is one."""
        place = at + self.padding[axis] - tap
        stride = self.strides[axis]
        source = tirx.truncdiv(place, stride)
        divides = tirx.truncmod(place, stride) == 0
        return source, tirx.all(place >= 0, divides, source < extent)


@dataclass(frozen=True)
class Int16TransposeConv2D(TransposeConv2D):
    """The same of int16, summed up in 64 bits, or in 32 as a bias of int32 asks for."""

    bits: int = 64

    @property
    def name(self) -> str:
        return f"{super().name}_int16_{self.bits}"

    @property
    def _dtype(self) -> str:
        return "int16"

    @property
    def _sum_type(self) -> str:
        return f"int{self.bits}"

    def _scaled(self, total: Any, bias: Any, multiplier: Any, shift: Any) -> Any:
        if self.bits == 32:
            return super()._scaled(total, bias, multiplier, shift)
        return requantize_int64(total + bias, multiplier, shift)


def lower_transpose_conv(graph: Graph, operator: Operator) -> KernelCall:
    """TRANSPOSE_CONV."""
    attributes = operator.attributes
    assert isinstance(attributes, TransposeConvolution)
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    outputs, rows, columns, _ = weights.shape
    image, made = source.shape, result.shape
    shapes = (
        (image[0], image[1], image[2], image[3]),
        (made[0], made[1], made[2], made[3]),
        (rows, columns),
        attributes.strides,
        attributes.padding,
    )
    kernel = TransposeConv2D(*shapes)
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    bias = bias_of(graph, operator, outputs)
    if source.dtype == "int16":
        bits = 32 if attributes.sums_in_32_bits else 64
        kernel = Int16TransposeConv2D(*shapes, bits)
        bias = bias.astype(f"int{bits}")
        if bits == 64:
            multiplier = np.array([short_multiplier(int(m)) for m in multiplier], np.int32)
    return KernelCall(
        kernel,
        (
            operand_of(position, source),
            ConstantArgument("weights", weights),
            ConstantArgument("bias", bias),
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
            ScalarArgument("input_zero_point", quantization_of(source).zero_point),
            ScalarArgument("output_zero_point", quantization_of(result).zero_point),
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
        macs=math.prod(source.shape) * rows * columns * outputs,
    )
