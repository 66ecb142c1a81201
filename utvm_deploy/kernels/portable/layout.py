"""Kernels that put elements into another order, or side by side: loops over strides and tables.

A Rearrange reads, for every output dimension, the input at an offset of its own. Where the offsets
grow evenly they are a stride; a dimension whose offsets grow evenly in two rhythms (pixels of a
block, an upsampled row) becomes two; only what is left (GATHER, odd resizing) reads a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.attributes import Concatenation, Rearrange
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of, stored
from utvm_deploy.kernels.portable.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    prim_func,
    script,
)

#: One loop: how many elements, and their offsets in the input beyond the first one's.
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
        if self._run is not None:
            return self._turned(self._run)
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
        if self._run is not None:
            return f"copy by four times four of {self.extents[self._run]}x{self.extents[-1]}"
        runs = self.steps[-1] == 1
        return f"copy by {'runs' if runs else 'elements'} of {self.extents[-1]}"

    @property
    def _run(self) -> int | None:
        """The loop whose bytes lie side by side in the input, where it is not the innermost one."""
        if self.dtype != "int8" or None in self.steps or 1 not in self.steps[:-1]:
            return None
        return self.steps.index(1)

    def _turned(self, run: int) -> Any:
        """Matrices of the loop ``run`` by the innermost one, transposed by words."""
        source = Operand("input", (self.count,), self.dtype)
        output = Operand("output", self.extents, self.dtype)
        last = len(self.extents) - 1
        around = [axis for axis in range(last) if axis != run]
        columns, rows = self.extents[run], self.extents[last]
        pitch = math.prod(self.extents[run + 1 :])

        def body(buffers: Buffers) -> None:
            grid = script.grid(*(self.extents[axis] for axis in around), 1, 1)
            with grid as loops, script.sblock("transpose"):
                values = script.axis.remap("S" * len(loops), list(loops))
                place: list[Any] = [0] * (last + 1)
                whole: list[Any] = [slice(0, extent) for extent in self.extents]
                first = buffers["start"]
                for axis, value in zip(around, values[:-2], strict=True):
                    place[axis] = whole[axis] = value
                    first = first + value * self.steps[axis]
                script.reads(source.region(buffers))
                script.writes(buffers["output"][tuple(whole)])
                call = extern(
                    "utvm_transpose",
                    script.address_of(buffers["input"][first]),
                    script.address_of(buffers["output"][tuple(place)]),
                    *(rows, columns, self.steps[last], pitch),
                )
                script.evaluate(call)

        return prim_func(
            [source, "start", output], [], body, helpers=[shared_text("utvm_transpose")]
        )


@dataclass(frozen=True)
class Joined:
    """Every row of the output is a row of each input, one after the other."""

    rows: int
    sizes: tuple[int, ...]  # elements of each input's row
    dtype: str

    @property
    def name(self) -> str:
        return f"join_{self.rows}_{label(self.sizes)}_{self.dtype}"

    def prim_func(self) -> Any:
        sources = [
            Operand(f"input_{i}", (self.rows, size), self.dtype)
            for i, size in enumerate(self.sizes)
        ]
        output = Operand("output", (self.rows, sum(self.sizes)), self.dtype)

        def body(buffers: Buffers) -> None:
            start = 0
            for source in sources:
                self._copy(buffers, source, start)
                start += source.shape[1]

        return prim_func([*sources, output], [], body)

    def schedule(self, sch: Any, core: str) -> str:
        return f"copy by rows of {label(self.sizes)}"

    def _copy(self, buffers: Buffers, source: Operand, start: int) -> None:
        def element(row: Any, column: Any) -> None:
            value = buffers[source.name][row, column]
            script.buffer_store(buffers["output"], value, [row, column + start])

        axes = [("row", self.rows, "S"), ("column", source.shape[1], "S")]
        block(f"copy_{source.name}", axes, element)


def lower_rearrange(graph: Graph, operator: Operator) -> KernelCall:
    """TRANSPOSE, SLICE, GATHER and the like, as loops that are as few as can be."""
    a = operator.attributes
    assert isinstance(a, Rearrange)
    position, source = input_of(graph, operator, 0)
    output, _ = output_of(graph, operator)
    start, loops = loops_of(a)
    steps = tuple(_step(offsets) for _, offsets in loops)
    tables = [
        ConstantArgument(f"table_{axis}", offsets.astype(np.int32))
        for axis, ((_, offsets), step) in enumerate(zip(loops, steps, strict=True))
        if step is None
    ]
    count = math.prod(source.shape)
    return KernelCall(
        Rearranged(count, tuple(extent for extent, _ in loops), steps, stored(source.dtype)),
        (
            operand_of(position, source),
            *tables,
            ScalarArgument("start", start),
            TensorArgument(output),
        ),
    )


def lower_concatenation(graph: Graph, operator: Operator) -> KernelCall:
    """CONCATENATION and PACK."""
    a = operator.attributes
    assert isinstance(a, Concatenation)
    output, result = output_of(graph, operator)
    operands: list[Argument] = []
    sizes: list[int] = []
    for i in range(len(operator.inputs)):
        position, source = input_of(graph, operator, i)
        operands.append(operand_of(position, source))
        sizes.append(math.prod(source.shape[a.axis :]))
    rows = math.prod(result.shape[: a.axis])
    return KernelCall(
        Joined(rows, tuple(sizes), stored(result.dtype)), (*operands, TensorArgument(output))
    )


def loops_of(a: Rearrange) -> tuple[int, tuple[Loop, ...]]:
    """Where the first element lies in the input, and the loops over all, outermost first."""
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
    """Loops whose offsets grow evenly, if there are such, else one with these offsets."""
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
    """The difference of neighbours where it is always the same."""
    if offsets.size == 1:
        return 0
    steps = np.diff(offsets)
    return int(steps[0]) if (steps == steps[0]).all() else None
