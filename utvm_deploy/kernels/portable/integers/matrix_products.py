"""BATCH_MATMUL as loops over elements, of every type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.packed_weights import is_packed, weights_of_kernel
from utvm_deploy.kernels.contract.requantization import clamped, requantize, requantize_int64
from utvm_deploy.kernels.portable.schedules.skeletons import (
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


class Side(NamedTuple):
    """An input: the parameter in te, and what gives its element at an index."""

    table: Any
    at: Callable[..., Any]


def _side(shape: tuple[int, ...], dtype: str, name: str) -> Side:
    if is_packed(dtype):
        return Side(*weights_of_kernel(shape, dtype))
    table = te.placeholder(shape, dtype, name)
    return Side(table, lambda *index: table[index])


@dataclass(frozen=True)
class ProductShapes:
    """``output[b, i, j]`` sums ``left[b, i, k] * right[b, k, j]``; batches may repeat an input."""

    batches: tuple[int, ...]
    left_follows: Flags
    right_follows: Flags
    rows: int
    depth: int
    columns: int
    left_turned: bool  # left is stored [k, i]
    right_turned: bool  # right is stored [j, k]

    @property
    def shapes_label(self) -> str:
        """The shapes as the end of a kernel's name."""
        sides = f"{flags_label(self.left_follows)}_{flags_label(self.right_follows)}"
        turned = f"{'nt'[self.left_turned]}{'nt'[self.right_turned]}"
        shape = label((self.rows, self.depth, self.columns))
        return f"{label(self.batches)}_{sides}_{shape}_{turned}"

    def sides(self, left_type: str, right_type: str) -> tuple[Side, Side]:
        """The two inputs."""
        m, depth, n = self.rows, self.depth, self.columns
        left_shape = (depth, m) if self.left_turned else (m, depth)
        right_shape = (n, depth) if self.right_turned else (depth, n)
        batches = followed_extents(self.batches, self.left_follows)
        left = _side((*batches, *left_shape), left_type, "left")
        batches = followed_extents(self.batches, self.right_follows)
        return left, _side((*batches, *right_shape), right_type, "right")

    def sums(self, left: Side, right: Side, product: Callable[[Any, Any], Any], name: str) -> Any:
        """The stage ``name``, which sums ``product`` of each two elements."""
        k = te.reduce_axis((0, self.depth), "k")

        def total(*index: Any) -> Any:
            *batch, i, j = index
            in_left = (k, i) if self.left_turned else (i, k)
            in_right = (j, k) if self.right_turned else (k, j)
            a = left.at(*followed_index(batch, self.left_follows), *in_left)
            b = right.at(*followed_index(batch, self.right_follows), *in_right)
            return te.sum(product(a, b), axis=k)

        return te.compute((*self.batches, self.rows, self.columns), total, name=name)


@dataclass(frozen=True)
class Products(ProductShapes):
    """Products of integers."""

    #: The type of left and of the output, and the type of sums.
    dtype: ClassVar[str] = "int8"
    sum_type: ClassVar[str] = "int32"

    @property
    def name(self) -> str:
        return f"matmul_{self.shapes_label}"

    def prim_func(self) -> Any:
        """The PrimFunc that a search may reorder, also of subclasses that are C routines."""
        left, right = self.sides(self.dtype, self.right_type)
        scalars = list(int32s(SCALARS).values())
        left_zero_point, right_zero_point, multiplier, shift, zero_point, low, high = scalars

        def product(a: Any, b: Any) -> Any:
            wide = (a.astype("int32") - left_zero_point) * (b.astype("int32") - right_zero_point)
            return wide.astype(self.sum_type)

        totals = self.sums(left, right, product, "matmul")
        scale = requantize_int64 if self.sum_type == "int64" else requantize

        def element(*i: Any) -> Any:
            scaled = scale(totals[i], multiplier, shift)
            return clamped(scaled + zero_point, low, high, self.dtype)

        output = te.compute(totals.shape, element, name="requantize")
        return te.create_prim_func([left.table, right.table, *scalars, output])

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
class Int4MatrixProducts(DeepMatrixProducts):
    """Products of int8 by constants of int4."""

    right_type: str = "int4"

    @property
    def name(self) -> str:
        return f"{super().name}_int8_{self.right_type}"


@dataclass(frozen=True)
class Int16MatrixProducts(DeepMatrixProducts):
    """Products of int16 by int16, or by int8 or int4, with sums of 64 bits."""

    right_type: str = "int16"

    dtype: ClassVar[str] = "int16"
    sum_type: ClassVar[str] = "int64"

    @property
    def name(self) -> str:
        return f"{super().name}_int16_{self.right_type}"
