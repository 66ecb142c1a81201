"""TRANSPOSE_CONV of float32: for each output, the inputs whose windows reach it, in order.

The reference adds each input to the outputs that its window reaches. So an output adds up its
inputs by rows, columns and channels of the image, beginning with 0. Where the window has no tap for
an input, or the image has no such row, the kernel adds 0. That changes no sum that begins with 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.attributes import TransposeConvolution
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.schedules.float_values import float_bias, limited, limits_label
from utvm_deploy.kernels.portable.schedules.tiling import choose_tile, schedule_accumulation


@dataclass(frozen=True)
class FloatTransposeConv2D:
    """Shape parameters; weights are [block, row, column, input channel, channel of the block]."""

    image: tuple[int, ...]  # [batch, rows, columns, channels], as the output
    output: tuple[int, ...]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]  # top and left
    limits: Limits

    @property
    def name(self) -> str:
        window = f"{label(self.kernel)}_s{label(self.strides)}_p{label(self.padding)}"
        shapes = f"{label(self.image)}_{label(self.output)}"
        return f"transpose_conv_float_{window}_{shapes}{limits_label(self.limits)}"

    @property
    def block(self) -> int:
        """The output channels that are computed together."""
        return choose_tile(1, self.output[3]).channels

    def stored(self, weights: Array) -> Array:
        """The file's weights, [output channel, row, column, input channel], as the kernel reads."""
        blocks = weights.reshape(-1, self.block, *weights.shape[1:])
        return np.ascontiguousarray(np.moveaxis(blocks, 1, -1))

    def prim_func(self) -> Any:
        block, inputs, outputs = self.block, self.image[3], self.output[3]
        image = te.placeholder(self.image, "float32", "input")
        shape = (outputs // block, *self.kernel, inputs, block)
        weights = te.placeholder(shape, "float32", "weights")
        bias = te.placeholder((outputs,), "float32", "bias")
        # As many rows and columns of the image as can reach one output.
        row_axis, column_axis = (
            te.reduce_axis((0, -(-taps // stride)), name)
            for taps, stride, name in zip(self.kernel, self.strides, ("ky", "kx"), strict=True)
        )
        ci = te.reduce_axis((0, inputs), "ci")

        def product(n: Any, y: Any, x: Any, o: Any) -> Any:
            row, ky, has_row = self._source(y, row_axis, 0)
            column, kx, has_column = self._source(x, column_axis, 1)
            value = image[n, row, column, ci] * weights[o // block, ky, kx, ci, o % block]
            reaches = tirx.all(has_row, has_column)
            term = tirx.if_then_else(reaches, value, tirx.const(0.0, "float32"))
            return te.sum(term, axis=[row_axis, column_axis, ci])

        sums = te.compute(self.output, product, name="sums")
        output = te.compute(
            self.output,
            lambda n, y, x, o: limited(sums[n, y, x, o] + bias[o], self.limits),
            name="output",
        )
        return te.create_prim_func([image, weights, bias, output])

    def _source(self, at: Any, step: Any, axis: int) -> tuple[Any, Any, Any]:
        """The input row or column of a step, its tap, and whether there are such ones."""
        taps, stride, extent = self.kernel[axis], self.strides[axis], self.image[axis + 1]
        place = at + self.padding[axis]
        back = -(-taps // stride) - 1 - step
        source, tap = place // stride - back, place % stride + back * stride
        exists = tirx.all(source >= 0, source < extent, tap < taps)
        return source, tap, exists

    def schedule(self, sch: Any, core: str) -> str:
        *_, o = sch.get_loops(sch.get_sblock("output"))
        oo, oi = sch.split(o, [None, self.block])
        sums = sch.get_sblock("sums")
        sch.compute_at(sums, oo, preserve_unit_loops=True)
        *_, channel, ky, kx, ci = sch.get_loops(sums)
        schedule_accumulation(sch, sums, [ky, kx, ci], [channel])
        sch.unroll(oi)
        return f"generic C, {self.block} channels in registers"


def lower_transpose_conv(op: Operation) -> KernelCall:
    """TRANSPOSE_CONV."""
    a, source, weights = op.attributes(TransposeConvolution), op.source, op.constant(1)
    outputs, rows, columns, _ = weights.shape
    kernel = FloatTransposeConv2D(
        source.shape, op.result.shape, (rows, columns), a.strides, a.padding, a.limits
    )
    parameters = {"weights": kernel.stored(weights), "bias": float_bias(op, outputs)}
    return op.call(kernel, parameters, macs=math.prod(source.shape) * rows * columns * outputs)


FLOAT_LOWERINGS: Mapping[str, Lowering] = {"TRANSPOSE_CONV": lower_transpose_conv}
