"""BATCH_MATMUL: products of matrices, either side computed or constant, either transposed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.attributes import BatchMatmul
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.packed_weights import is_packed
from utvm_deploy.kernels.contract.requantization import (
    quantize_multiplier,
    short_multiplier,
)
from utvm_deploy.kernels.native.routines.dot import ROWS, dot_texts
from utvm_deploy.kernels.portable.integers.matrix_products import (
    SCALARS,
    DeepMatrixProducts,
    Int4MatrixProducts,
    Int16MatrixProducts,
    Products,
)
from utvm_deploy.kernels.portable.schedules.skeletons import (
    followed_extents,
    followed_index,
    merged_shapes,
)

# Sums of up to 8,192 products fit 32 bits, with any zero points.
_MOST_DEPTH = 8192


@dataclass(frozen=True)
class MatrixProducts(Products):
    """Products of int8 with 32-bit sums. A search may reorder ``loops`` instead of the routine."""

    why: ClassVar[str] = f"C, {ROWS} products of a row at a time"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return *self._sides, *SCALARS, self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        sums = Operand("sums", (2 * self.columns,), "int32")
        return sums, *(one for one in self._turned if one is not None)

    def texts(self, core: str) -> tuple[str, ...]:
        names = ["utvm_word", "utvm_byte_sums", "utvm_scale"]
        if any(self._turned):
            names.append("utvm_transpose")
        return (*map(shared_text, names), *dot_texts(core), shared_text("utvm_matmul"))

    def drive(self, c: Driver) -> None:
        shape = (self.rows, self.depth, self.columns)
        with c.loops("batch", self.batches) as index:
            sides = []
            follows = (self.left_follows, self.right_follows)
            for side, followed, turned, rows in zip(
                self._sides, follows, self._turned, shape[::2], strict=True
            ):
                start = side.at(*followed_index(index, followed))
                if turned is not None:
                    c.call("utvm_transpose", start, turned.at(), self.depth, rows, rows, self.depth)
                    start = turned.at()
                sides.append(start)
            sums, *_ = self.scratch
            c.call("utvm_matmul", *sides, *SCALARS, self._output.at(*index), sums.at(), *shape)

    @property
    def _sides(self) -> tuple[Operand, Operand]:
        sides = (self.left_follows, self.right_follows)
        left, right = (followed_extents(self.batches, follows) for follows in sides)
        left, right = (*left, self.rows * self.depth), (*right, self.columns * self.depth)
        return Operand("left", left, "int8"), Operand("right", right, "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", (*self.batches, self.rows * self.columns), "int8")

    @property
    def _turned(self) -> tuple[Operand | None, Operand | None]:
        """Scratch for the sides that are transposed."""
        left = Operand("left_rows", (self.rows * self.depth,), "int8")
        right = Operand("right_rows", (self.columns * self.depth,), "int8")
        return left if self.left_turned else None, None if self.right_turned else right


def lower_batch_matmul(op: Operation) -> KernelCall:
    """BATCH_MATMUL."""
    a = op.attributes(BatchMatmul)
    left, right = (op.input(i) for i in (0, 1))
    result = op.result
    *batches, rows, columns = result.shape
    extents, (left_follows, right_follows) = merged_shapes(
        (left.shape[:-2], right.shape[:-2]), batches
    )
    depth = left.shape[-2] if a.left_turned else left.shape[-1]
    # The product of the inputs' scales is one of float32.
    scales = [np.float32(quantization_of(t).scale) for t in (left, right)]
    ratio = float(scales[0] * scales[1]) / quantization_of(result).scale
    multiplier, shift = quantize_multiplier(ratio)
    shape = (extents, left_follows, right_follows, rows, depth, columns)
    kernel: Products
    if left.dtype == "int16":
        kernel = Int16MatrixProducts(*shape, a.left_turned, a.right_turned, right.dtype)
        multiplier = short_multiplier(multiplier)
    elif is_packed(right.dtype):
        kernel = Int4MatrixProducts(*shape, a.left_turned, a.right_turned)
    elif depth > _MOST_DEPTH:
        kernel = DeepMatrixProducts(*shape, a.left_turned, a.right_turned)
    else:
        kernel = MatrixProducts(*shape, a.left_turned, a.right_turned)
    zero_points = [quantization_of(tensor).zero_point for tensor in (left, right, result)]
    numbers = (*zero_points[:2], multiplier, shift, zero_points[2], *left.element.limits)
    scalars = dict(zip(SCALARS, numbers, strict=True))
    macs = math.prod(result.shape) * depth
    return op.call(kernel, scalars, inputs=(0, 1), macs=macs)


LOWERINGS = {"BATCH_MATMUL": lower_batch_matmul}
