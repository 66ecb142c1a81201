"""Products of float32 with matrices: FULLY_CONNECTED and BATCH_MATMUL.

The order of additions is that of LiteRT's reference kernels: one sum that begins with 0, in the
order of the weights, then the bias. So results have equal bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.attributes import BatchMatmul, FullyConnected
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.integers.matrix_products import ProductShapes
from utvm_deploy.kernels.portable.schedules.float_values import float_bias, limited, limits_label
from utvm_deploy.kernels.portable.schedules.skeletons import (
    merged_shapes,
)
from utvm_deploy.kernels.portable.schedules.tiling import (
    MAX_FLOAT_ACCUMULATORS,
    RegisterTile,
    choose_tile,
    schedule_accumulation,
)


@dataclass(frozen=True)
class FloatDense:
    """FULLY_CONNECTED; constant weights are [block, input, output of the block].

    A block has the outputs of a register tile, so that the tile reads its weights in one sequence.
    Computed weights are [output, input].
    """

    batch: int
    depth: int
    outputs: int
    limits: Limits
    computed: bool = False  # the weights

    @property
    def name(self) -> str:
        limits = ("_computed" if self.computed else "") + limits_label(self.limits)
        return f"dense_float_{self.batch}x{self.depth}_{self.outputs}{limits}"

    @property
    def tile(self) -> RegisterTile:
        """The outputs that are computed together."""
        return choose_tile(self.batch, self.outputs, MAX_FLOAT_ACCUMULATORS)

    def stored(self, weights: Array) -> Array:
        """The file's weights, [output, input], as the kernel reads constant ones."""
        blocks = weights.reshape(-1, self.tile.channels, self.depth)
        return np.ascontiguousarray(np.moveaxis(blocks, 1, -1))

    def prim_func(self) -> Any:
        block = self.tile.channels
        x = te.placeholder((self.batch, self.depth), "float32", "input")
        blocks = (self.outputs // block, self.depth, block)
        shape = (self.outputs, self.depth) if self.computed else blocks
        weights = te.placeholder(shape, "float32", "weights")
        bias = te.placeholder((self.outputs,), "float32", "bias")
        k = te.reduce_axis((0, self.depth), "k")

        def product(i: Any, o: Any) -> Any:
            weight = weights[o, k] if self.computed else weights[o // block, k, o % block]
            return te.sum(x[i, k] * weight, axis=k)

        sums = te.compute((self.batch, self.outputs), product, name="sums")
        output = te.compute(
            sums.shape, lambda i, o: limited(sums[i, o] + bias[o], self.limits), name="output"
        )
        return te.create_prim_func([x, weights, bias, output])

    def schedule(self, sch: Any, core: str) -> str:
        _schedule_tile(sch, self.tile)
        return f"generic C, {self.tile.pixels} rows x {self.tile.channels} outputs in registers"


@dataclass(frozen=True)
class FloatProducts(ProductShapes):
    """BATCH_MATMUL."""

    @property
    def name(self) -> str:
        return f"matmul_float_{self.shapes_label}"

    def prim_func(self) -> Any:
        left, right = self.sides("float32", "float32")
        sums = self.sums(left, right, lambda a, b: a * b, "sums")
        output = te.compute(sums.shape, lambda *i: sums[i], name="output")
        return te.create_prim_func([left.table, right.table, output])

    def schedule(self, sch: Any, core: str) -> str:
        tile = choose_tile(self.rows, self.columns, MAX_FLOAT_ACCUMULATORS)
        _schedule_tile(sch, tile)
        return f"generic C, {tile.pixels} rows x {tile.channels} columns in registers"


def _schedule_tile(sch: Any, tile: RegisterTile) -> None:
    """Add up a tile of the last two dimensions at once."""
    *batches, i, j = sch.get_loops(sch.get_sblock("output"))
    io, ii = sch.split(i, [None, tile.pixels])
    jo, ji = sch.split(j, [None, tile.channels])
    # With the columns outermost, weights are read once.
    sch.reorder(*batches, jo, io, ii, ji)
    sums = sch.get_sblock("sums")
    sch.compute_at(sums, io, preserve_unit_loops=True)
    *_, row, column, k = sch.get_loops(sums)
    schedule_accumulation(sch, sums, [k], [row, column])
    for loop in (ii, ji):
        sch.unroll(loop)


def lower_dense(op: Operation) -> KernelCall:
    """FULLY_CONNECTED; leading dimensions of the output are the batch."""
    outputs, depth = op.input(1).shape
    batch = math.prod(op.result.shape) // outputs
    data, limits = op.input(1).data, op.attributes(FullyConnected).limits
    kernel = FloatDense(batch, depth, outputs, limits, data is None)
    weights = TensorArgument(op.position(1)) if data is None else kernel.stored(data)
    parameters = {"weights": weights, "bias": float_bias(op, outputs)}
    return op.call(kernel, parameters, macs=batch * outputs * depth)


def lower_batch_matmul(op: Operation) -> KernelCall:
    """BATCH_MATMUL."""
    a = op.attributes(BatchMatmul)
    left, right = op.input(0).shape, op.input(1).shape
    *batches, rows, columns = op.result.shape
    extents, (one, other) = merged_shapes((left[:-2], right[:-2]), batches)
    depth = left[-2] if a.left_turned else left[-1]
    turned = a.left_turned, a.right_turned
    kernel = FloatProducts(extents, one, other, rows, depth, columns, *turned)
    return op.call(kernel, inputs=(0, 1), macs=math.prod(op.result.shape) * depth)


FLOAT_LOWERINGS: Mapping[str, Lowering] = {
    "BATCH_MATMUL": lower_batch_matmul,
    "FULLY_CONNECTED": lower_dense,
}
