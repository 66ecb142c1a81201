"""MEAN and SUM: sums in 32 bits, then one multiplier for scales and the division of MEAN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph import attributes as ops
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.extents import flags_label, label, type_label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    limits_of_type,
    quantize_multiplier,
    requantize,
    wrap_int32,
)
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.portable.reduce import merged_axes, outer_and_inner, reduced_count
from utvm_deploy.kernels.portable.skeletons import Reduction, int32s
from utvm_deploy.kernels.portable.tiling import choose_tile, schedule_accumulation

_SCALARS = ("offset", "multiplier", "shift", "zero_point")


@dataclass(frozen=True)
class Mean(Reduction):
    """MEAN over merged dimensions."""

    dtype: str = "int8"

    @property
    def name(self) -> str:
        axes = flags_label(self.is_reduced)
        return f"mean_{label(self.extents)}_{axes}{type_label(self.dtype)}"

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, self.dtype, "input")
        scalars = int32s(_SCALARS)
        offset, multiplier, shift, zero_point = scalars.values()
        sums = self.reduced("mean", te.sum, lambda i: self._read(source[i].astype("int32")))

        def element(*i: Any) -> Any:
            scaled = requantize(add_wrapping(sums[i], offset), multiplier, shift)
            return self._limited(scaled + zero_point)

        output = te.compute(self.kept, element, name="requantize")
        return te.create_prim_func([source, *scalars.values(), output])

    def schedule(self, sch: Any, core: str) -> str:
        kept = sch.get_loops(sch.get_sblock("requantize"))
        # Neighbouring outputs are accumulated together only if their inputs are neighbours, too.
        channels = 1 if self.is_reduced[-1] else self.kept[-1]
        tile = choose_tile(1, channels)
        outer, inner = sch.split(kept[-1], [None, tile.channels])
        sums = sch.get_sblock("mean")
        sch.compute_at(sums, outer, preserve_unit_loops=True)
        axes = sch.get_loops(sums)[-sum(self.is_reduced) :]
        column = sch.get_loops(sums)[-len(axes) - 1]
        schedule_accumulation(sch, sums, axes, [column])
        sch.unroll(inner)
        return f"generic C, {tile.channels} outputs in registers"

    def _read(self, value: Any) -> Any:
        return value

    def _limited(self, value: Any) -> Any:
        return clamped(value, *limits_of_type(self.dtype), self.dtype)


@dataclass(frozen=True)
class UnsignedSum(Mean):
    """SUM of int8: the reference reads and writes its bytes as unsigned ones."""

    @property
    def name(self) -> str:
        return super().name.replace("mean", "unsigned_sum", 1)

    def _read(self, value: Any) -> Any:
        return value & 0xFF

    def _limited(self, value: Any) -> Any:
        # Values from 128 on are the bytes of negative numbers.
        unsigned = clamped(value, 0, 255, "int32")
        return ((unsigned ^ 128) - 128).astype("int8")


def lower_mean(op: Operation) -> KernelCall:
    """MEAN and SUM over any axes."""
    attributes, source = op.operator.attributes, op.source
    assert isinstance(attributes, ops.Mean | ops.Sum)
    axes = attributes.axes
    extents, is_reduced = merged_axes(source.shape, axes)
    count = reduced_count(source.shape, axes)
    start, end = op.ends
    ratio = start.scale / end.scale
    kernel: Mean | CRoutine = Mean(extents, is_reduced, source.dtype)
    if isinstance(attributes, ops.Sum):
        kernel = UnsignedSum(extents, is_reduced, source.dtype)
        multiplier, shift = quantize_multiplier(ratio)
    else:
        around = outer_and_inner(extents, is_reduced)
        if source.dtype == "int8" and around is not None:
            kernel = _mean_of_bytes(kernel.name, around)
        multiplier, shift = mean_multiplier(ratio, count)
    values = (wrap_int32(-start.zero_point * count), multiplier, shift, end.zero_point)
    return op.call(kernel, dict(zip(_SCALARS, values, strict=True)))


def _mean_of_bytes(name: str, around: tuple[int, int, int]) -> CRoutine:
    """MEAN of int8 over one merged dimension; ``around`` as ``around_axis`` returns it."""
    return CRoutine(
        "utvm_mean",
        (*buffers(input="int8"), *_SCALARS, *buffers(output="int8")),
        around,
        name=name,
        why="generic C, sums of four bytes at a time",
        c_texts=(shared_text("utvm_word"), shared_text("utvm_mean")),
    )


def mean_multiplier(scale: float, count: int) -> tuple[int, int]:
    """``scale / count`` as the reference rounds it: the scale to nearest, the quotient down."""
    multiplier, shift = quantize_multiplier(scale)
    # The most bits that the quotient can keep without a right shift of more than 31 bits.
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra


LOWERINGS = {"MEAN": lower_mean, "SUM": lower_mean}
