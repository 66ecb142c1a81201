"""BATCH_MATMUL as loops over elements, of every type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.requantization import clamped, requantize, requantize_int64
from utvm_deploy.kernels.portable.skeletons import (
    DefaultLoops,
    Flags,
    compute_per_output,
    followed_extents,
    followed_index,
    initialize_apart,
    int32s,
)

#: The int32 parameters that every kernel takes.
SCALARS = (
    *("left_zero_point", "right_zero_point"),
    *("multiplier", "shift", "output_zero_point", "low", "high"),
)


@dataclass(frozen=True)
class Products:
    """``output[b, i, j]`` sums ``left[b, i, k] * right[b, k, j]``; batches may repeat an input."""

    batches: tuple[int, ...]
    left_follows: Flags
    right_follows: Flags
    rows: int
    depth: int
    columns: int
    left_turned: bool  # left is stored [k, i]
    right_turned: bool  # right is stored [j, k]

    #: The type of left and of the output, and the type of sums.
    dtype: ClassVar[str] = "int8"
    sum_type: ClassVar[str] = "int32"

    @property
    def name(self) -> str:
        sides = f"{flags_label(self.left_follows)}_{flags_label(self.right_follows)}"
        turned = f"{'nt'[self.left_turned]}{'nt'[self.right_turned]}"
        shape = label((self.rows, self.depth, self.columns))
        return f"matmul_{label(self.batches)}_{sides}_{shape}_{turned}"

    def prim_func(self) -> Any:
        """The PrimFunc that a search may reorder, also of subclasses that are C routines."""
        m, depth, n = self.rows, self.depth, self.columns
        left_shape = (depth, m) if self.left_turned else (m, depth)
        right_shape = (n, depth) if self.right_turned else (depth, n)
        batches = followed_extents(self.batches, self.left_follows)
        left = te.placeholder((*batches, *left_shape), self.dtype, "left")
        batches = followed_extents(self.batches, self.right_follows)
        right = te.placeholder((*batches, *right_shape), self.right_type, "right")
        scalars = list(int32s(SCALARS).values())
        left_zero_point, right_zero_point, multiplier, shift, zero_point, low, high = scalars
        k = te.reduce_axis((0, depth), "k")

        def total(*index: Any) -> Any:
            *batch, i, j = index
            in_left = (k, i) if self.left_turned else (i, k)
            in_right = (j, k) if self.right_turned else (k, j)
            a = left[followed_index(batch, self.left_follows) + in_left]
            b = right[followed_index(batch, self.right_follows) + in_right]
            product = (a.astype("int32") - left_zero_point) * (b.astype("int32") - right_zero_point)
            return te.sum(product.astype(self.sum_type), axis=k)

        totals = te.compute((*self.batches, m, n), total, name="matmul")
        scale = requantize_int64 if self.sum_type == "int64" else requantize

        def element(*i: Any) -> Any:
            scaled = scale(totals[i], multiplier, shift)
            return clamped(scaled + zero_point, low, high, self.dtype)

        output = te.compute(totals.shape, element, name="requantize")
        return te.create_prim_func([left, right, *scalars, output])

    @property
    def right_type(self) -> str:
        """The type of right."""
        return self.dtype


@dataclass(frozen=True)
class DeepMatrixProducts(Products, DefaultLoops):
    """Products of int8 that are so deep that the sum of a row may exceed 32 bits."""

    def schedule(self, sch: Any, core: str) -> str:
        *_, j = sch.get_loops(sch.get_sblock("requantize"))
        compute_per_output(sch, j, "matmul")
        initialize_apart(sch, "matmul")
        return self.why


@dataclass(frozen=True)
class Int16MatrixProducts(DeepMatrixProducts):
    """Products of int16 by int16 or int8, with sums of 64 bits."""

    right_type: str = "int16"

    dtype: ClassVar[str] = "int16"
    sum_type: ClassVar[str] = "int64"

    @property
    def name(self) -> str:
        return f"{super().name}_int16_{self.right_type}"
