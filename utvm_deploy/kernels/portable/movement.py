"""Operators that move elements without a new order: RESHAPE, the variables, PAD and PADV2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from utvm_deploy.graph.attributes import Pad
from utvm_deploy.graph.constant_folding import fill_of
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label, type_label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import element_count, input_of, kernel_call, stored
from utvm_deploy.kernels.portable.skeletons import Unary


@dataclass(frozen=True)
class Copy(Unary):
    """``output[i] = input[i]``."""

    what: ClassVar[str] = "copy"
    why: ClassVar[str] = "copy"

    @property
    def name(self) -> str:
        return f"copy_{self.count}_{self.source}"

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
    """RESHAPE: a copy, which is not made where input and output may lie in the same place."""
    _, source = input_of(graph, operator, 0)
    kernel = Copy(element_count(source), stored(source.dtype), stored(source.dtype))
    return kernel_call(graph, operator, kernel, in_place=[0])


def lower_variable(graph: Graph, operator: Operator) -> KernelCall:
    """READ_VARIABLE and ASSIGN_VARIABLE where ``compiler.views`` finds that a copy is needed."""
    return replace(lower_reshape(graph, operator), in_place=())


def lower_pad(graph: Graph, operator: Operator) -> KernelCall:
    """PAD and PADV2 of any dimensions."""
    assert isinstance(operator.attributes, Pad)
    _, source = input_of(graph, operator, 0)
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
    kernel = PadBorders(tuple(extents), tuple(before), tuple(after), source.dtype)
    return kernel_call(graph, operator, kernel, {"fill": fill_of(graph, operator)})


LOWERINGS = {
    "ASSIGN_VARIABLE": lower_variable,
    "EXPAND_DIMS": lower_reshape,
    "PAD": lower_pad,
    "PADV2": lower_pad,
    "READ_VARIABLE": lower_variable,
    "RESHAPE": lower_reshape,
    "SQUEEZE": lower_reshape,
}
