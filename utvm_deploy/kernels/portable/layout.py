"""Kernels that put elements into another order, or side by side: loops over strides and tables.

A Rearrange reads, for every output dimension, the input at an offset of its own. Where the offsets
grow evenly they are a stride; a dimension whose offsets grow evenly in two rhythms (pixels of a
block, an upsampled row) becomes two; only what is left (GATHER, odd resizing) reads a table.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
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
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of, stored
from utvm_deploy.kernels.portable.tensor_ir import Buffers, block, prim_func, script

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
    """The same of bytes that lie side by side along loop ``run``, which is not the innermost one.

    Each matrix of that loop by the innermost one is transposed by words.
    """

    rearranged: Rearranged
    run: int

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

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return ()

    def texts(self, core: str) -> tuple[str, ...]:
        return (shared_text("utvm_transpose"),)

    def drive(self, c: Driver) -> None:
        extents, steps, output = self.rearranged.extents, self._steps, self._output
        first, made = Index(), Index()
        with ExitStack() as loops:
            for axis in range(len(extents) - 1):
                if axis != self.run:
                    counter = loops.enter_context(c.loop(f"axis_{axis}", extents[axis]))
                    first = first + counter * steps[axis]
                    made = made + counter * output.stride(axis)
            places = self._source.at(first + Index.named("start")), output.at(made)
            sizes = extents[-1], extents[self.run], steps[-1], output.stride(self.run)
            c.call("utvm_transpose", *places, *sizes)

    @property
    def _steps(self) -> list[int]:
        return [step for step in self.rearranged.steps if step is not None]

    @property
    def _source(self) -> Operand:
        return Operand("input", (self.rearranged.count,), "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.rearranged.extents, "int8")


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
    extents = tuple(extent for extent, _ in loops)
    kernel = Rearranged(math.prod(source.shape), extents, steps, stored(source.dtype))
    # Bytes side by side in the input, but not in the output.
    is_turned = kernel.dtype == "int8" and None not in steps and 1 in steps[:-1]
    return KernelCall(
        Transposed(kernel, steps.index(1)) if is_turned else kernel,
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


_MOVES = (
    *("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"),
    *("BROADCAST_TO", "GATHER_ND", "MIRROR_PAD", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2"),
    *("SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
)
LOWERINGS = {
    **dict.fromkeys(_MOVES, lower_rearrange),
    "CONCATENATION": lower_concatenation,
    "PACK": lower_concatenation,
}
