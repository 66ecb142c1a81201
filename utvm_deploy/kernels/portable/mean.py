"""MEAN and SUM: sums in 32 bits, then one multiplier for the scales and MEAN's division."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph import attributes as ops
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of, quantization_of
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    quantize_multiplier,
    requantize,
    wrap_int32,
)
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.portable.reduce import merged_axes, outer_and_inner, reduced_count
from utvm_deploy.kernels.portable.tiling import choose_tile, schedule_accumulation

_SCALARS = ("offset", "multiplier", "shift", "zero_point")


@dataclass(frozen=True)
class Mean:
    """MEAN over merged dimensions, alternately kept and reduced."""

    extents: tuple[int, ...]
    is_reduced: tuple[bool, ...]
    dtype: str = "int8"

    @property
    def name(self) -> str:
        return _name(self.extents, self.is_reduced, self.dtype)

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, self.dtype, "input")
        scalars = [te.var(name, "int32") for name in _SCALARS]
        offset, multiplier, shift, zero_point = scalars
        axes = [
            te.reduce_axis((0, extent), f"k{i}")
            for i, extent in enumerate(self.extents)
            if self.is_reduced[i]
        ]

        def total(*kept: Any) -> Any:
            outer, inner = iter(kept), iter(axes)
            index = tuple(next(inner if reduced else outer) for reduced in self.is_reduced)
            return te.sum(self._read(source[index].astype("int32")), axis=axes)

        sums = te.compute(self._kept, total, name="mean")
        output = te.compute(
            self._kept,
            lambda *i: self._limited(
                requantize(add_wrapping(sums[i], offset), multiplier, shift) + zero_point
            ),
            name="requantize",
        )
        return te.create_prim_func([source, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        kept = sch.get_loops(sch.get_sblock("requantize"))
        # Outputs side by side are accumulated together only if their inputs are, too.
        channels = 1 if self.is_reduced[-1] else self._kept[-1]
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
        limits = np.iinfo(self.dtype)
        return clamped(value, int(limits.min), int(limits.max), self.dtype)

    @property
    def _kept(self) -> tuple[int, ...]:
        kept = zip(self.extents, self.is_reduced, strict=True)
        return tuple(extent for extent, reduced in kept if not reduced) or (1,)


@dataclass(frozen=True)
class MeanOfBytes(RoutineKernel):
    """MEAN of int8 over one of the merged dimensions."""

    extents: tuple[int, ...]
    is_reduced: tuple[bool, ...]

    why: ClassVar[str] = "generic C, sums of four bytes at a time"

    @property
    def name(self) -> str:
        return _name(self.extents, self.is_reduced, "int8")

    @property
    def routine(self) -> RoutineCall:
        around = outer_and_inner(self.extents, self.is_reduced)
        assert around is not None
        outer, count, inner = around
        source = Operand("input", (outer * count * inner,), "int8")
        output = Operand("output", (outer * inner,), "int8")
        return RoutineCall("utvm_mean", (source, *_SCALARS, output), around)

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_word"), shared_text("utvm_mean")


@dataclass(frozen=True)
class UnsignedSum(Mean):
    """SUM of int8, whose bytes the reference takes for unsigned ones, those of the result too."""

    @property
    def name(self) -> str:
        return super().name.replace("mean", "unsigned_sum", 1)

    def _read(self, value: Any) -> Any:
        return value & 0xFF

    def _limited(self, value: Any) -> Any:
        # From 128 on it is the byte of a negative number.
        unsigned = clamped(value, 0, 255, "int32")
        return ((unsigned ^ 128) - 128).astype("int8")


def lower_mean(graph: Graph, operator: Operator) -> KernelCall:
    """MEAN and SUM over any axes."""
    assert isinstance(operator.attributes, ops.Mean | ops.Sum)
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    axes = operator.attributes.axes
    extents, is_reduced = merged_axes(source.shape, axes)
    count = reduced_count(source.shape, axes)
    quantization = quantization_of(result)
    ratio = quantization_of(source).scale / quantization.scale
    if isinstance(operator.attributes, ops.Sum):
        kernel: Mean | MeanOfBytes = UnsignedSum(extents, is_reduced, source.dtype)
        multiplier, shift = quantize_multiplier(ratio)
    else:
        is_plain = source.dtype == "int8" and outer_and_inner(extents, is_reduced) is not None
        kernel = (
            MeanOfBytes(extents, is_reduced)
            if is_plain
            else Mean(extents, is_reduced, source.dtype)
        )
        multiplier, shift = mean_multiplier(ratio, count)
    return KernelCall(
        kernel,
        (
            operand_of(position, source),
            ScalarArgument("offset", wrap_int32(-quantization_of(source).zero_point * count)),
            ScalarArgument("multiplier", multiplier),
            ScalarArgument("shift", shift),
            ScalarArgument("zero_point", quantization.zero_point),
            TensorArgument(output),
        ),
    )


def _name(extents: tuple[int, ...], is_reduced: tuple[bool, ...], dtype: str) -> str:
    suffix = "" if dtype == "int8" else f"_{dtype}"
    return f"mean_{label(extents)}_{''.join('01'[r] for r in is_reduced)}{suffix}"


def mean_multiplier(scale: float, count: int) -> tuple[int, int]:
    """``scale / count`` as the reference rounds it: first the scale, then down by the division."""
    multiplier, shift = quantize_multiplier(scale)
    # As many bits as the quotient can keep, within the right shifts that there are.
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra
