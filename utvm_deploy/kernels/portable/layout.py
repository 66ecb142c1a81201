"""Operators that change the order of elements (Rearrange), as loops over strides and tables.

For each output dimension, offsets say where the input is read. Offsets that grow evenly are a
stride. A dimension of evenly growing groups, such as the pixels of a block, becomes two loops. Only
other offsets, such as those of GATHER, are a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.attributes import Rearrange
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import element_count, stored
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of

#: One loop: its extent, and the offsets in the input from where the loop begins.
Loop: TypeAlias = tuple[int, "NDArray[np.int64]"]


@dataclass(frozen=True)
class Rearranged:
    """``output[i, j, ...] = x[start + i * step + table[j] + ...]``: a step of None is a table."""

    count: int  # elements of the input
    extents: tuple[int, ...]
    steps: tuple[int | None, ...]
    dtype: str

    @property
    def name(self) -> str:
        steps = "x".join("t" if s is None else f"{s}".replace("-", "m") for s in self.steps)
        return f"rearrange_{self.count}_{label(self.extents)}_by_{steps}_{self.dtype}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), self.dtype, "input")
        start = te.var("start", "int32")
        tables = [
            te.placeholder((extent,), "int32", f"table_{axis}") if step is None else None
            for axis, (extent, step) in enumerate(zip(self.extents, self.steps, strict=True))
        ]

        def element(*index: Any) -> Any:
            place = start
            for i, step, table in zip(index, self.steps, tables, strict=True):
                place = place + (table[i] if table is not None else i * step)
            return source[place]

        output = te.compute(self.extents, element, name="rearrange")
        named = [table for table in tables if table is not None]
        return te.create_prim_func([source, *named, start, output])

    def schedule(self, sch: Any, core: str) -> str:
        runs = self.steps[-1] == 1
        return f"copy by {'runs' if runs else 'elements'} of {self.extents[-1]}"


@dataclass(frozen=True)
class Transposed:
    """A Rearranged of bytes that are contiguous in the input along loop ``run``, not the innermost.

    Each matrix of that loop by the innermost one is transposed in blocks of four times four bytes.
    """

    rearranged: Rearranged
    run: int

    scratch: ClassVar[tuple[Operand, ...]] = ()

    @property
    def name(self) -> str:
        return self.rearranged.name

    @property
    def why(self) -> str:
        extents = self.rearranged.extents
        return f"copy by four times four of {extents[self.run]}x{extents[-1]}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._source, "start", self._output

    def texts(self, core: str) -> tuple[str, ...]:
        return (shared_text("utvm_transpose"),)

    def drive(self, c: Driver) -> None:
        extents, output = self.rearranged.extents, self._output
        steps = [step for step in self.rearranged.steps if step is not None]
        outer = [1 if axis == self.run else extent for axis, extent in enumerate(extents[:-1])]
        with c.loops("axis", outer) as index:
            first = sum((one * step for one, step in zip(index, steps, strict=False)), Index())
            places = self._source.at(first + Index.named("start")), output.at(*index)
            sizes = extents[-1], extents[self.run], steps[-1], output.stride(self.run)
            c.call("utvm_transpose", *places, *sizes)

    @property
    def _source(self) -> Operand:
        return Operand("input", (self.rearranged.count,), "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.rearranged.extents, "int8")


def lower_rearrange(op: Operation) -> KernelCall:
    """TRANSPOSE, SLICE, GATHER and others, as the fewest loops."""
    a = op.attributes(Rearrange)
    source = op.source
    start, loops = loops_of(a)
    extents = tuple(extent for extent, _ in loops)
    steps = tuple(_step(offsets) for _, offsets in loops)
    parameters: Parameters = {
        **{
            f"table_{axis}": offsets.astype(np.int32)
            for axis, ((_, offsets), step) in enumerate(zip(loops, steps, strict=True))
            if step is None
        },
        "start": start,
    }
    kernel = Rearranged(element_count(source), extents, steps, stored(source.dtype))
    # Bytes that are contiguous in the input, but not in the output.
    is_turned = kernel.dtype == "int8" and None not in steps and 1 in steps[:-1]
    made = Transposed(kernel, steps.index(1)) if is_turned else kernel
    return op.call(made, parameters)


def lower_resize_nearest(op: Operation) -> KernelCall:
    """RESIZE_NEAREST_NEIGHBOR; pixels of whole words, or of few bytes, are copied by loops."""
    batch, height, width, channels = op.source.shape
    if stored(op.source.dtype) != "int8" or channels % 4 == 0 or channels < 5:
        return lower_rearrange(op)
    rows, columns = (np.array(one, np.int32) for one in op.attributes(Rearrange).indices[1:3])
    tables = {"rows": rows, "columns": columns * np.int32(channels)}
    kernel = CRoutine(
        "utvm_nearest",
        parameters_of(op, tables),
        (height, width, channels, rows.size, columns.size, batch),
        name=f"resize_nearest_{label(op.source.shape)}_{rows.size}x{columns.size}",
        why="generic C, a pixel at a time; rows that repeat are copied",
        c_texts=tuple(map(shared_text, ("utvm_word", "utvm_move", "utvm_nearest"))),
    )
    return op.call(kernel, tables)


def loops_of(a: Rearrange) -> tuple[int, tuple[Loop, ...]]:
    """The offset of the first element in the input, and the loops over all, outermost first."""
    strides = [math.prod(a.view[axis + 1 :]) for axis in range(len(a.view))]
    start = 0
    loops: list[Loop] = []
    for axis in a.order:
        offsets = np.array(a.indices[axis], np.int64) * strides[axis]
        start += int(offsets[0])
        loops += _split(offsets - offsets[0])
    merged: list[Loop] = []
    for extent, offsets in loops:
        if extent == 1:
            continue
        outer, inner = _step(merged[-1][1]) if merged else None, _step(offsets)
        if outer is not None and inner is not None and outer == inner * extent:
            extent *= merged.pop()[0]
            offsets = np.arange(extent) * inner
        merged.append((extent, offsets))
    return start, tuple(merged) or ((1, np.zeros(1, np.int64)),)


def _split(offsets: NDArray[np.int64]) -> list[Loop]:
    """Loops whose offsets grow evenly, if these offsets are such loops; else one loop."""
    count = offsets.size
    if _step(offsets) is not None:
        return [(count, offsets)]
    steps = np.diff(offsets)
    inner = int(np.argmax(steps != steps[0])) + 1
    if count % inner == 0:
        rows = offsets.reshape(-1, inner)
        if (rows - rows[:, :1] == rows[0]).all():
            return [*_split(rows[:, 0]), (inner, rows[0])]
    return [(count, offsets)]


def _step(offsets: NDArray[np.int64]) -> int | None:
    """The difference of neighbouring offsets, if it is always the same; else None."""
    if offsets.size == 1:
        return 0
    steps = np.diff(offsets)
    return int(steps[0]) if (steps == steps[0]).all() else None


_KINDS = (
    *("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"),
    *("BROADCAST_TO", "FILL", "GATHER_ND", "MIRROR_PAD", "REVERSE_V2"),
    *("SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
)
LOWERINGS = {
    **dict.fromkeys(_KINDS, lower_rearrange),
    "RESIZE_NEAREST_NEIGHBOR": lower_resize_nearest,
}
