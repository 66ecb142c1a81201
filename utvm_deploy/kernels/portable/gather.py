"""GATHER and EMBEDDING_LOOKUP by computed positions; a position is limited to the input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attributes import Gather
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import input_of, kernel_call, stored
from utvm_deploy.kernels.portable.layout import lower_rearrange


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


def lower_gather(graph: Graph, operator: Operator) -> KernelCall:
    """GATHER and EMBEDDING_LOOKUP; by constant positions it is a Rearrange."""
    a = operator.attributes
    if not isinstance(a, Gather):
        return lower_rearrange(graph, operator)
    source, positions = (input_of(graph, operator, i)[1] for i in (0, 1))
    kernel = GatheredRows(
        math.prod(source.shape[: a.batches]),
        math.prod(source.shape[a.batches : a.axis]),
        source.shape[a.axis],
        math.prod(positions.shape[a.batches :]),
        math.prod(source.shape[a.axis + 1 :]),
        stored(source.dtype),
        positions.dtype,
    )
    return kernel_call(graph, operator, kernel, inputs=2)


LOWERINGS = {"EMBEDDING_LOOKUP": lower_gather, "GATHER": lower_gather}
