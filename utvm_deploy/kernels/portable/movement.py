"""Kernels that move bytes: RESHAPE and PAD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Pad
from utvm_deploy.graph.constant_folding import fill_of
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of, stored


@dataclass(frozen=True)
class Copy:
    """``output[i] = input[i]``."""

    count: int
    dtype: str

    @property
    def name(self) -> str:
        return f"copy_{self.count}_{self.dtype}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), self.dtype, "input")
        output = te.compute((self.count,), lambda i: source[i], name="copy")
        return te.create_prim_func([source, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "copy"


@dataclass(frozen=True)
class PadBorders:
    """PAD; of all dimensions only the first need not be padded."""

    extents: tuple[int, ...]  # of the input
    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: str = "int8"

    @property
    def name(self) -> str:
        dtype = "" if self.dtype == "int8" else f"_{self.dtype}"
        return f"pad_{label(self.extents)}_b{label(self.before)}_a{label(self.after)}{dtype}"

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, self.dtype, "input")
        fill = te.var("fill", "int32")
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
            return tirx.if_then_else(tirx.all(*conditions), value, fill.astype(self.dtype))

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


def lower_reshape(graph: Graph, operator: Operator) -> KernelCall:
    """RESHAPE: a copy that the arena plan can make unnecessary."""
    position, source = input_of(graph, operator, 0)
    output, _ = output_of(graph, operator)
    count = int(np.prod(source.shape, dtype=np.int64))
    return KernelCall(
        Copy(count, stored(source.dtype)),
        (operand_of(position, source), TensorArgument(output)),
        in_place=((output, position),) if source.data is None else (),
    )


def lower_variable(graph: Graph, operator: Operator) -> KernelCall:
    """READ_VARIABLE and ASSIGN_VARIABLE where ``compiler.views`` finds that it takes a copy."""
    return replace(lower_reshape(graph, operator), in_place=())


def lower_pad(graph: Graph, operator: Operator) -> KernelCall:
    """PAD and PADV2 of any dimensions."""
    assert isinstance(operator.attributes, Pad)
    position, source = input_of(graph, operator, 0)
    output, _ = output_of(graph, operator)
    extents, before, after = [1], [0], [0]
    for extent, (b, a) in zip(source.shape, operator.attributes.paddings, strict=True):
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
    return KernelCall(
        PadBorders(tuple(extents), tuple(before), tuple(after), source.dtype),
        (
            operand_of(position, source),
            ScalarArgument("fill", fill_of(graph, operator)),
            TensorArgument(output),
        ),
    )
