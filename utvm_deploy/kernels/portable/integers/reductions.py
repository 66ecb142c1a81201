"""Reductions of stored values: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ARG_MAX and ARG_MIN.

MEAN and SUM add in 32 bits. MEAN multiplies once, by the ratio of the scales over the count. SUM
multiplies by the ratio in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import ArgExtremum, Reduce, Sum
from utvm_deploy.graph.attributes import Mean as MeanAttributes
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.extents import around_axis, flags_label, label, merge, type_label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import stored
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    INT8_MAX,
    INT8_MIN,
    add_wrapping,
    clamped,
    mean_multiplier,
    requantize,
    wrap_int32,
)
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.integers.pool import Pool2D
from utvm_deploy.kernels.portable.schedules.skeletons import (
    DefaultLoops,
    Reduction,
    compute_per_output,
    initialize_apart,
    int32s,
)
from utvm_deploy.kernels.portable.schedules.tiling import choose_tile, schedule_accumulation

#: What ``utvm_requantize_right`` takes: sums up to this, and shifts from this to -1.
_LARGEST_RIGHT, _LEAST_SHIFT = 1 << 30, -30
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
        sums = self.reduced("mean", te.sum, lambda i: source[i].astype("int32"))

        def element(*i: Any) -> Any:
            scaled = requantize(add_wrapping(sums[i], offset), multiplier, shift)
            return clamped(scaled + zero_point, *element_type(self.dtype).limits, self.dtype)

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


@dataclass(frozen=True)
class SumOfBytes(Mean):
    """SUM of int8 or int16: it is scaled in float32, as LiteRT's default kernel does."""

    @property
    def name(self) -> str:
        return super().name.replace("mean", "sum", 1)

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, self.dtype, "input")
        # The ratio of the scales, and what the zero points of all terms amount to.
        ratio, offset = (te.placeholder((1,), "float32", name) for name in ("ratio", "offset"))
        zero_point = te.var("zero_point", "int32")
        sums = self.reduced("mean", te.sum, lambda i: source[i].astype("int32"))

        def element(*i: Any) -> Any:
            scaled = sums[i].astype("float32") * ratio[0] + offset[0]
            rounded = tirx.call_pure_extern("int32", "utvm_quantize", scaled)
            return clamped(rounded + zero_point, *element_type(self.dtype).limits, self.dtype)

        output = te.compute(self.kept, element, name="requantize")
        return te.create_prim_func([source, ratio, offset, zero_point, output])


@dataclass(frozen=True)
class ReducedExtremum(Reduction, DefaultLoops):
    """The extremum over merged dimensions."""

    takes_largest: bool
    dtype: str = "int8"

    @property
    def name(self) -> str:
        which = "max" if self.takes_largest else "min"
        axes = flags_label(self.is_reduced)
        return f"reduce_{which}_{label(self.extents)}_{axes}_{self.dtype}"

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, self.dtype, "input")
        reduce = te.max if self.takes_largest else te.min
        return te.create_prim_func([source, self.reduced("reduce", reduce, lambda i: source[i])])

    def schedule(self, sch: Any, core: str) -> str:
        initialize_apart(sch, "reduce", loops=sum(self.is_reduced))
        return self.why


@dataclass(frozen=True)
class ArgumentOfExtremum(DefaultLoops):
    """The first position of the extremum along the middle one of three dimensions."""

    extents: tuple[int, int, int]
    takes_largest: bool
    dtype: str
    result: str

    why: ClassVar[str] = "generic C, one element at a time, twice"

    @property
    def name(self) -> str:
        which = "max" if self.takes_largest else "min"
        return f"arg_{which}_{label(self.extents)}_{self.dtype}_{self.result}"

    def prim_func(self) -> Any:
        outer, length, inner = self.extents
        source = te.placeholder(self.extents, self.dtype, "input")
        k = te.reduce_axis((0, length), "k")
        reduce = te.max if self.takes_largest else te.min
        shape = (outer, inner)
        extremum = te.compute(shape, lambda i, j: reduce(source[i, k, j], axis=k), name="extremum")
        at = te.reduce_axis((0, length), "at")

        def first(i: Any, j: Any) -> Any:
            is_extremum = source[i, at, j] == extremum[i, j]
            return te.min(tirx.if_then_else(is_extremum, at, length), axis=at)

        position = te.compute(shape, first, name="position")
        output = te.compute(shape, lambda i, j: position[i, j].astype(self.result), name="argument")
        return te.create_prim_func([source, output])

    def schedule(self, sch: Any, core: str) -> str:
        *_, last = sch.get_loops(sch.get_sblock("argument"))
        for name in ("position", "extremum"):
            compute_per_output(sch, last, name)
            initialize_apart(sch, name)
        return self.why


def _argument_of_bytes(name: str, rows: int, length: int, takes_largest: bool) -> CRoutine:
    """The first position, as int32, of the extremum of each row of int8."""
    return CRoutine(
        "utvm_argument",
        buffers(input="int8", output="int32"),
        (rows, length, 0 if takes_largest else -1),
        name=name,
        why="generic C, the extremum of words, then its place",
        c_texts=(shared_text("utvm_word"), shared_text("utvm_argument")),
    )


def lower_reduce_extremum(op: Operation) -> KernelCall:
    """REDUCE_MAX and REDUCE_MIN over any axes; on 0 and 1, REDUCE_ANY and REDUCE_ALL."""
    source = op.source
    merged = merged_axes(source.shape, op.attributes(Reduce).axes)
    takes_largest = op.kind in ("REDUCE_MAX", "REDUCE_ANY")
    kernel = ReducedExtremum(*merged, takes_largest, stored(source.dtype))
    if kernel.around and op.kind == "REDUCE_MAX" and source.dtype == "int8":
        # The maximum of columns is MAX_POOL_2D of images that are one pixel wide.
        outer, count, inner = kernel.around
        window = Window(outer, count, 1, 1, 1, (count, 1), (1, 1), (1, 1), 0, 0)
        pool = Pool2D(window, inner, is_average=False)
        return op.call(pool, {"low": INT8_MIN, "high": INT8_MAX})
    return op.call(kernel)


def lower_arg_extremum(op: Operation) -> KernelCall:
    """ARG_MAX and ARG_MIN along one axis."""
    source, result = op.source, op.result
    extents = around_axis(source.shape, op.attributes(ArgExtremum).axis)
    takes_largest, types = op.kind == "ARG_MAX", (source.dtype, result.dtype)
    kernel = ArgumentOfExtremum(extents, takes_largest, *types)
    if extents[2] == 1 and types == ("int8", "int32"):
        return op.call(_argument_of_bytes(kernel.name, *extents[:2], takes_largest))
    return op.call(kernel)


def lower_mean(op: Operation) -> KernelCall:
    """MEAN over any axes."""
    merged, count = _merged(op, op.attributes(MeanAttributes).axes)
    start, end = op.ends
    mean = Mean(*merged, op.source.dtype)
    kernel: Mean | CRoutine = mean
    multiplier, shift = mean_multiplier(start.scale / end.scale, count)
    if op.source.dtype == "int8" and mean.around is not None:
        kernel = _mean_of_bytes(mean, shift, count)
    values = (wrap_int32(-start.zero_point * count), multiplier, shift, end.zero_point)
    return op.call(kernel, dict(zip(_SCALARS, values, strict=True)))


def lower_sum(op: Operation) -> KernelCall:
    """SUM over any axes."""
    merged, count = _merged(op, op.attributes(Sum).axes)
    start, end = op.ends
    ratio = np.float32(start.scale) / np.float32(end.scale)
    offset = np.float32(-start.zero_point) * ratio * np.float32(count)
    factors = {"ratio": np.array([ratio]), "offset": np.array([offset])}
    return op.call(SumOfBytes(*merged, op.source.dtype), factors | {"zero_point": end.zero_point})


def _merged(
    op: Operation, axes: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], tuple[bool, ...]], int]:
    """The merged dimensions, and how many elements one output is made of."""
    shape = op.source.shape
    return merged_axes(shape, axes), math.prod(shape[axis] for axis in axes)


def _mean_of_bytes(mean: Mean, shift: int, count: int) -> CRoutine:
    """MEAN of int8 over one merged dimension, of ``count`` elements."""
    around, routine, name = mean.around, shared_text("utvm_mean"), mean.name
    assert around is not None
    # Sums of differences of bytes.
    is_right = _LEAST_SHIFT <= shift < 0 and count << 8 <= _LARGEST_RIGHT
    if is_right:
        name, product = f"{name}_right", ("utvm_requantize(", "utvm_requantize_right(", 1)
        names = ("utvm_mean_of", "utvm_right_mean_of", 3), ("utvm_mean(", "utvm_right_mean(", 1)
        routine = replaced(routine, product, *names)
    return CRoutine(
        "utvm_right_mean" if is_right else "utvm_mean",
        (*buffers(input="int8"), *_SCALARS, *buffers(output="int8")),
        around,
        name=name,
        why="generic C, sums of four bytes at a time",
        c_texts=(*map(shared_text, ("utvm_word", "utvm_byte_sums")), routine),
    )


def merged_axes(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """The merged dimensions of ``shape``, and which are reduced: at least one."""
    extents, is_reduced = merge(shape, [i in axes for i in range(len(shape))])
    if not any(is_reduced):
        extents, is_reduced = [*extents, 1], [*is_reduced, True]
    return tuple(extents), tuple(is_reduced)


LOWERINGS = {
    "ARG_MAX": lower_arg_extremum,
    "ARG_MIN": lower_arg_extremum,
    "MEAN": lower_mean,
    "REDUCE_ALL": lower_reduce_extremum,
    "REDUCE_ANY": lower_reduce_extremum,
    "REDUCE_MAX": lower_reduce_extremum,
    "REDUCE_MIN": lower_reduce_extremum,
    "SUM": lower_sum,
}
