"""BATCH_MATMUL: products of matrices, either side computed or constant, either transposed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import BatchMatmul
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand, Place
from utvm_deploy.kernels.contract.extents import label, merge
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of, quantization_of
from utvm_deploy.kernels.contract.requantization import (
    clamped,
    quantize_multiplier,
    requantize,
    requantize_wide,
    short_multiplier,
)
from utvm_deploy.kernels.native.routines.dot import ROWS, dot_texts

# Products up to this depth cannot exceed 32 bits, whatever the zero points.
_MOST_DEPTH = 8192
_SCALARS = (
    "left_zero_point", "right_zero_point", "multiplier", "shift", "output_zero_point", "low",
    "high",
)  # fmt: skip


@dataclass(frozen=True)
class _Products:
    """``output[b, i, j]`` sums ``left[b, i, k] * right[b, k, j]``; batches may repeat a side."""

    batches: tuple[int, ...]
    left_follows: tuple[bool, ...]
    right_follows: tuple[bool, ...]
    rows: int
    depth: int
    columns: int
    left_turned: bool  # left is stored [k, i]
    right_turned: bool  # right is stored [j, k]

    @property
    def name(self) -> str:
        sides = ("".join("01"[f] for f in s) for s in (self.left_follows, self.right_follows))
        turned = f"{'t' if self.left_turned else 'n'}{'t' if self.right_turned else 'n'}"
        shape = label((self.rows, self.depth, self.columns))
        return f"matmul_{label(self.batches)}_{'_'.join(sides)}_{shape}_{turned}"

    def loops(self) -> Any:
        """One element at a time, whatever the types: what a search may reorder."""
        m, depth, n = self.rows, self.depth, self.columns
        left_shape = (depth, m) if self.left_turned else (m, depth)
        right_shape = (n, depth) if self.right_turned else (depth, n)
        left_type, right_type = self._types
        left = te.placeholder((*self._batches(self.left_follows), *left_shape), left_type, "left")
        right = te.placeholder(
            (*self._batches(self.right_follows), *right_shape), right_type, "right"
        )
        scalars = [te.var(name, "int32") for name in _SCALARS]
        left_zero_point, right_zero_point, multiplier, shift, zero_point, low, high = scalars
        k = te.reduce_axis((0, depth), "k")

        def total(*index: Any) -> Any:
            *batch, i, j = index
            in_left = (k, i) if self.left_turned else (i, k)
            in_right = (j, k) if self.right_turned else (k, j)
            a = left[self._at(self.left_follows, batch) + in_left]
            b = right[self._at(self.right_follows, batch) + in_right]
            product = (a.astype("int32") - left_zero_point) * (b.astype("int32") - right_zero_point)
            return te.sum(product.astype(self._sum_type), axis=k)

        shape = (*self.batches, m, n)
        totals = te.compute(shape, total, name="matmul")
        output = te.compute(
            shape,
            lambda *i: clamped(
                self._scaled(totals[i], multiplier, shift) + zero_point, low, high, left_type
            ),
            name="requantize",
        )
        return te.create_prim_func([left, right, *scalars, output])

    @property
    def _types(self) -> tuple[str, str]:
        """Of left, which the output shares, and of right."""
        return "int8", "int8"

    @property
    def _sum_type(self) -> str:
        return "int32"

    def _scaled(self, total: Any, multiplier: Any, shift: Any) -> Any:
        return requantize(total, multiplier, shift)

    def _batches(self, follows: tuple[bool, ...]) -> tuple[int, ...]:
        return tuple(e if f else 1 for e, f in zip(self.batches, follows, strict=True))

    @staticmethod
    def _at(follows: tuple[bool, ...], batch: list[Any]) -> tuple[Any, ...]:
        return tuple(i if f else 0 for i, f in zip(batch, follows, strict=True))


@dataclass(frozen=True)
class MatrixProducts(_Products):
    """Products of int8, with sums that 32 bits hold; what a search may reorder is ``loops``."""

    why: ClassVar[str] = f"C, {ROWS} products of a row at a time"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return *self._sides, *_SCALARS, self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        turned = (one for one in self._turned if one is not None)
        return self._sums, *turned

    def texts(self, core: str) -> tuple[str, ...]:
        names = ["utvm_word", "utvm_mean", "utvm_scale"]
        if any(self._turned):
            names.append("utvm_transpose")
        return (*map(shared_text, names), *dot_texts(core), shared_text("utvm_matmul"))

    def drive(self, c: Driver) -> None:
        for one in self.scratch:
            c.claim(one)
        with ExitStack() as loops:
            batch = [loops.enter_context(c.loop(extent)) for extent in self.batches]
            given = self._sides
            follows = (self.left_follows, self.right_follows)
            sizes = (self.rows, self.columns)
            sides = [
                self._side(c, *side, batch)
                for side in zip(given, follows, self._turned, sizes, strict=True)
            ]
            made = _place(self._output, (True,) * len(batch), batch)
            shape = (self.rows, self.depth, self.columns)
            c.call("utvm_matmul", *sides, *_SCALARS, made, self._sums.at(), *shape)

    def _side(
        self,
        c: Driver,
        side: Operand,
        follows: tuple[bool, ...],
        turned: Operand | None,
        rows: int,
        batch: Sequence[Index],
    ) -> Place:
        """Where the rows of a side lie; transposed before, if they are not stored so."""
        start = _place(side, follows, batch)
        if turned is None:
            return start
        c.call("utvm_transpose", start, turned.at(), self.depth, rows, rows, self.depth)
        return turned.at()

    @property
    def _sides(self) -> tuple[Operand, Operand]:
        left = (*self._batches(self.left_follows), self.rows * self.depth)
        right = (*self._batches(self.right_follows), self.columns * self.depth)
        return Operand("left", left, "int8"), Operand("right", right, "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", (*self.batches, self.rows * self.columns), "int8")

    @property
    def _sums(self) -> Operand:
        return Operand("sums", (2 * self.columns,), "int32")

    @property
    def _turned(self) -> tuple[Operand | None, Operand | None]:
        """Scratch for the sides that are transposed."""
        left = Operand("left_rows", (self.rows * self.depth,), "int8")
        right = Operand("right_rows", (self.columns * self.depth,), "int8")
        return left if self.left_turned else None, None if self.right_turned else right


def _place(operand: Operand, follows: tuple[bool, ...], batch: Sequence[Index]) -> Place:
    """Where a matrix of an operand begins."""
    place = Index()
    for axis, (counter, is_followed) in enumerate(zip(batch, follows, strict=True)):
        place = place + counter * (operand.stride(axis) if is_followed else 0)
    return operand.at(place)


@dataclass(frozen=True)
class DeepMatrixProducts(_Products):
    """Products of int8 so deep that 32 bits may not hold a sum by rows."""

    def prim_func(self) -> Any:
        return self.loops()

    def schedule(self, sch: Any, core: str) -> str:
        *_, j = sch.get_loops(sch.get_sblock("requantize"))
        block = sch.get_sblock("matmul")
        sch.compute_at(block, j)
        sch.decompose_reduction(block, sch.get_loops(block)[-1])
        return "generic C, one element at a time"


@dataclass(frozen=True)
class WideMatrixProducts(DeepMatrixProducts):
    """The same of int16 by int16 or int8, summed up in 64 bits."""

    right_type: str = "int16"

    @property
    def name(self) -> str:
        return f"{super().name}_int16_{self.right_type}"

    @property
    def _types(self) -> tuple[str, str]:
        return "int16", self.right_type

    @property
    def _sum_type(self) -> str:
        return "int64"

    def _scaled(self, total: Any, multiplier: Any, shift: Any) -> Any:
        return requantize_wide(total, multiplier, shift)


def lower_batch_matmul(graph: Graph, operator: Operator) -> KernelCall:
    """BATCH_MATMUL."""
    a = operator.attributes
    assert isinstance(a, BatchMatmul)
    (left_position, left), (right_position, right) = (input_of(graph, operator, i) for i in (0, 1))
    output, result = output_of(graph, operator)
    *batches, rows, columns = result.shape
    sides = [
        (1,) * (len(batches) + 2 - len(side.shape)) + side.shape[:-2] for side in (left, right)
    ]
    roles = [tuple(side[i] == extent for side in sides) for i, extent in enumerate(batches)]
    extents, merged = merge(batches or [1], roles or [(True, True)])
    left_follows, right_follows = zip(*merged, strict=True)
    depth = left.shape[-2] if a.left_turned else left.shape[-1]
    scales = [np.float32(quantization_of(t).scale) for t in (left, right)]
    # The product of the inputs' scales is one of float32.
    ratio = float(scales[0] * scales[1]) / quantization_of(result).scale
    multiplier, shift = quantize_multiplier(ratio)
    shape = (tuple(extents), left_follows, right_follows, rows, depth, columns)
    kernel: MatrixProducts | DeepMatrixProducts
    kernel = MatrixProducts(*shape, a.left_turned, a.right_turned)
    if depth > _MOST_DEPTH:
        kernel = DeepMatrixProducts(*shape, a.left_turned, a.right_turned)
    if left.dtype == "int16":
        kernel = WideMatrixProducts(*shape, a.left_turned, a.right_turned, right.dtype)
        multiplier = short_multiplier(multiplier)
    limits = np.iinfo(left.dtype)
    return KernelCall(
        kernel,
        (
            operand_of(left_position, left),
            operand_of(right_position, right),
            ScalarArgument("left_zero_point", quantization_of(left).zero_point),
            ScalarArgument("right_zero_point", quantization_of(right).zero_point),
            ScalarArgument("multiplier", multiplier),
            ScalarArgument("shift", shift),
            ScalarArgument("output_zero_point", quantization_of(result).zero_point),
            ScalarArgument("low", int(limits.min)),
            ScalarArgument("high", int(limits.max)),
            TensorArgument(output),
        ),
        macs=math.prod(result.shape) * depth,
    )
