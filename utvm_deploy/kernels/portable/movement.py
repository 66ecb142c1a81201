"""Operators that move whole rows: RESHAPE, the variables, PAD, CONCATENATION, PACK and GATHER.

Those that change the order of elements are in ``layout.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Concatenation, Gather, Pad
from utvm_deploy.graph.constant_folding import fill_of
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label, type_label
from utvm_deploy.kernels.contract.lazy_tvm import script, te, tirx
from utvm_deploy.kernels.contract.operands import element_count, stored
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.layout import lower_rearrange
from utvm_deploy.kernels.portable.schedules.skeletons import Buffers, Unary, block, prim_func


@dataclass(frozen=True)
class Copy(Unary):
    """``output[i] = input[i]``."""

    what: ClassVar[str] = "copy"
    why: ClassVar[str] = "copy"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        return value


@dataclass(frozen=True)
class PadBorders:
    """PAD in merged dimensions: each but the first has padding."""

    extents: tuple[int, ...]  # of the input
    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: str = "int8"

    @property
    def name(self) -> str:
        borders = f"b{label(self.before)}_a{label(self.after)}"
        return f"pad_{label(self.extents)}_{borders}{type_label(self.dtype)}"

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, self.dtype, "input")
        is_float = self.dtype == "float32"
        fill = te.placeholder((1,), "float32", "fill") if is_float else te.var("fill", "int32")
        dimensions = list(zip(self.extents, self.before, self.after, strict=True))

        def element(*index: Any) -> Any:
            inner = [i - before for i, before in zip(index, self.before, strict=True)]
            conditions = [
                condition
                for i, (extent, before, after) in zip(inner, dimensions, strict=True)
                for condition, needed in ((i >= 0, before), (i < extent, after))
                if needed
            ]
            value = source[tuple(inner)]
            if not conditions:
                return value
            border = fill[0] if is_float else fill.astype(self.dtype)
            return tirx.if_then_else(tirx.all(*conditions), value, border)

        shape = tuple(extent + before + after for extent, before, after in dimensions)
        output = te.compute(shape, element, name="pad")
        return te.create_prim_func([source, fill, output])

    def schedule(self, sch: Any, core: str) -> str:
        # The innermost loop is split where the input begins and ends, so that the copy is plain.
        *_, innermost = sch.get_loops(sch.get_sblock("pad"))
        parts = [part for part in (self.before[-1], self.extents[-1], self.after[-1]) if part]
        if len(parts) > 1:
            sch.loop_partition(innermost, [*parts[:-1], None])
        return "copy by rows"


@dataclass(frozen=True)
class Joined:
    """Each row of the output is a row of every input, one after the other."""

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

        return prim_func([*sources, output], body)

    def schedule(self, sch: Any, core: str) -> str:
        return f"copy by rows of {label(self.sizes)}"

    def _copy(self, buffers: Buffers, source: Operand, start: int) -> None:
        def element(row: Any, column: Any) -> None:
            value = buffers[source.name][row, column]
            script.buffer_store(buffers["output"], value, [row, column + start])

        axes = [("row", self.rows, "S"), ("column", source.shape[1], "S")]
        block(f"copy_{source.name}", axes, element)


@dataclass(frozen=True)
class GatheredRows:
    """``output[b, o, j] = x[b, o, positions[b, j]]``, rows of ``inner`` elements."""

    batches: int
    outer: int
    extent: int
    count: int  # positions of a batch
    inner: int
    dtype: str
    positions: str

    @property
    def name(self) -> str:
        shape = (self.batches, self.outer, self.extent, self.count, self.inner)
        return f"gather_{label(shape)}_{self.dtype}_{self.positions}"

    def prim_func(self) -> Any:
        shape = (self.batches, self.outer, self.extent, self.inner)
        source = te.placeholder(shape, self.dtype, "input")
        positions = te.placeholder((self.batches, self.count), self.positions, "positions")

        def element(b: Any, o: Any, j: Any, i: Any) -> Any:
            row = te.max(te.min(positions[b, j], self.extent - 1), 0).astype("int32")
            return source[b, o, row, i]

        made = (self.batches, self.outer, self.count, self.inner)
        output = te.compute(made, element, name="gather")
        return te.create_prim_func([source, positions, output])

    def schedule(self, sch: Any, core: str) -> str:
        return f"copy by rows of {self.inner}"


def lower_reshape(op: Operation) -> KernelCall:
    """RESHAPE: a copy, which is left out if input and output may have the same memory."""
    source = op.source
    kernel = Copy(element_count(source), stored(source.dtype), stored(source.dtype))
    return op.call(kernel, in_place=[0])


def lower_variable(op: Operation) -> KernelCall:
    """READ_VARIABLE and ASSIGN_VARIABLE where ``compiler.views`` finds that a copy is needed."""
    return replace(lower_reshape(op), in_place=())


def lower_pad(op: Operation) -> KernelCall:
    """PAD and PADV2 of any dimensions."""
    source, paddings = op.source, op.attributes(Pad).paddings
    extents, before, after = [1], [0], [0]
    for extent, (b, a) in zip(source.shape, paddings, strict=True):
        is_first = (extents, before, after) == ([1], [0], [0])
        if (b or a) and not is_first:
            extents.append(extent)
            before.append(b)
            after.append(a)
        else:
            # An unpadded dimension joins the one before it, whose padding grows accordingly.
            extents[-1] *= extent
            before[-1] = before[-1] * extent + b
            after[-1] = after[-1] * extent + a
    kernel = PadBorders(tuple(extents), tuple(before), tuple(after), source.dtype)
    fill = fill_of(op.graph, op.operator)
    is_float = source.dtype == "float32"
    return op.call(kernel, {"fill": np.array([fill], np.float32) if is_float else int(fill)})


def lower_concatenation(op: Operation) -> KernelCall:
    """CONCATENATION and PACK."""
    axis, result = op.attributes(Concatenation).axis, op.result
    inputs = range(len(op.operator.inputs))
    sizes = tuple(math.prod(op.input(i).shape[axis:]) for i in inputs)
    kernel = Joined(math.prod(result.shape[:axis]), sizes, stored(result.dtype))
    return op.call(kernel, inputs=inputs)


def lower_gather(op: Operation) -> KernelCall:
    """GATHER and EMBEDDING_LOOKUP; with constant positions they are a Rearrange.

    A computed position is limited to the input, so that no kernel reads outside of it.
    """
    a = op.operator.attributes
    if not isinstance(a, Gather):
        return lower_rearrange(op)
    source, positions = (op.input(i) for i in (0, 1))
    kernel = GatheredRows(
        math.prod(source.shape[: a.batches]),
        math.prod(source.shape[a.batches : a.axis]),
        source.shape[a.axis],
        math.prod(positions.shape[a.batches :]),
        math.prod(source.shape[a.axis + 1 :]),
        stored(source.dtype),
        positions.dtype,
    )
    return op.call(kernel, inputs=(0, 1))


LOWERINGS = {
    "ASSIGN_VARIABLE": lower_variable,
    "CONCATENATION": lower_concatenation,
    "EMBEDDING_LOOKUP": lower_gather,
    "EXPAND_DIMS": lower_reshape,
    "GATHER": lower_gather,
    "PACK": lower_concatenation,
    "PAD": lower_pad,
    "PADV2": lower_pad,
    "READ_VARIABLE": lower_variable,
    "RESHAPE": lower_reshape,
    "SQUEEZE": lower_reshape,
}
