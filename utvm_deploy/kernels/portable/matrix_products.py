"""BATCH_MATMUL as loops over elements, of every type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.requantization import (
    clamped,
    requantize,
    requantize_int64,
)

#: The numbers that every kernel takes.
SCALARS = (
    "left_zero_point", "right_zero_point", "multiplier", "shift", "output_zero_point", "low",
    "high",
)  # fmt: skip


@dataclass(frozen=True)
class Products:
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
        left = te.placeholder((*self.batches_of(self.left_follows), *left_shape), left_type, "left")
        right = te.placeholder(
            (*self.batches_of(self.right_follows), *right_shape), right_type, "right"
        )
        scalars = [te.var(name, "int32") for name in SCALARS]
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

    def batches_of(self, follows: tuple[bool, ...]) -> tuple[int, ...]:
        """The batches of a side, which has one where it repeats."""
        return tuple(e if f else 1 for e, f in zip(self.batches, follows, strict=True))

    @staticmethod
    def _at(follows: tuple[bool, ...], batch: list[Any]) -> tuple[Any, ...]:
        return tuple(i if f else 0 for i, f in zip(batch, follows, strict=True))


@dataclass(frozen=True)
class DeepMatrixProducts(Products):
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
class Int16MatrixProducts(DeepMatrixProducts):
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
        return requantize_int64(total, multiplier, shift)
