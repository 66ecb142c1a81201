"""REDUCE_MAX, REDUCE_MIN, ARG_MAX and ARG_MIN: the extreme stored value, or its position.

MEAN and SUM are in ``mean.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import ArgExtremum, Reduce
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.extents import around_axis, flags_label, label, merge
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import stored
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.pool import Pool2D
from utvm_deploy.kernels.portable.skeletons import (
    DefaultLoops,
    Reduction,
    compute_per_output,
    initialize_apart,
)


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
        extremum = te.compute(
            (outer, inner), lambda i, j: reduce(source[i, k, j], axis=k), name="extremum"
        )
        at = te.reduce_axis((0, length), "at")
        position = te.compute(
            (outer, inner),
            lambda i, j: te.min(
                tirx.if_then_else(source[i, at, j] == extremum[i, j], at, length), axis=at
            ),
            name="position",
        )
        output = te.compute(
            (outer, inner), lambda i, j: position[i, j].astype(self.result), name="argument"
        )
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
    """REDUCE_MAX and REDUCE_MIN over any axes; REDUCE_ANY and REDUCE_ALL are those of 0 and 1."""
    source = op.source
    extents, is_reduced = merged_axes(source.shape, op.attributes(Reduce).axes)
    around = outer_and_inner(extents, is_reduced)
    if around and op.kind == "REDUCE_MAX" and source.dtype == "int8":
        # The maximum of columns is MAX_POOL_2D of images that are one pixel wide.
        outer, count, inner = around
        window = Window(outer, count, 1, 1, 1, (count, 1), (1, 1), (1, 1), 0, 0)
        pool = Pool2D(window, inner, is_average=False)
        return op.call(pool, {"low": INT8_MIN, "high": INT8_MAX})
    takes_largest = op.kind in ("REDUCE_MAX", "REDUCE_ANY")
    kernel = ReducedExtremum(extents, is_reduced, takes_largest, stored(source.dtype))
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


def merged_axes(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """The merged dimensions of ``shape``, and which are reduced: at least one."""
    extents, is_reduced = merge(shape, [i in axes for i in range(len(shape))])
    if not any(is_reduced):
        extents, is_reduced = [*extents, 1], [*is_reduced, True]
    return tuple(extents), tuple(is_reduced)


def outer_and_inner(
    extents: tuple[int, ...], is_reduced: tuple[bool, ...]
) -> tuple[int, int, int] | None:
    """``around_axis`` of the only reduced dimension; None if several are reduced."""
    return around_axis(extents, is_reduced.index(True)) if sum(is_reduced) == 1 else None


def reduced_count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """The number of elements that become one."""
    return int(np.prod([shape[axis] for axis in axes], dtype=np.int64))


LOWERINGS = {
    "ARG_MAX": lower_arg_extremum,
    "ARG_MIN": lower_arg_extremum,
    "REDUCE_ALL": lower_reduce_extremum,
    "REDUCE_ANY": lower_reduce_extremum,
    "REDUCE_MAX": lower_reduce_extremum,
    "REDUCE_MIN": lower_reduce_extremum,
}
