"""ONE_HOT: one value at the positions that the input names, another value elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attributes import OneHot
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import around_axis, label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import stored
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.schedules.skeletons import DefaultLoops


@dataclass(frozen=True)
class MarkedPositions(DefaultLoops):
    """``output[o, j, i] = on if positions[o, i] == j else off``."""

    extents: tuple[int, int, int]  # of the output; the middle one is new
    dtype: str  # of the output
    positions: str  # int32 or int64

    @property
    def name(self) -> str:
        return f"one_hot_{label(self.extents)}_{self.dtype}_{self.positions}"

    def prim_func(self) -> Any:
        outer, _, inner = self.extents
        positions = te.placeholder((outer, inner), self.positions, "positions")
        on, off = (te.placeholder((1,), self.dtype, name) for name in ("on", "off"))

        def element(o: Any, j: Any, i: Any) -> Any:
            # The reference compares only the lower 32 bits of an int64.
            is_here = positions[o, i].astype("int32").equal(j)
            return tirx.if_then_else(is_here, on[0], off[0])

        output = te.compute(self.extents, element, name="one_hot")
        return te.create_prim_func([positions, on, off, output])


def lower_one_hot(op: Operation) -> KernelCall:
    """ONE_HOT along one axis of the output."""
    extents = around_axis(op.result.shape, op.attributes(OneHot).axis)
    kernel = MarkedPositions(extents, stored(op.result.dtype), op.source.dtype)
    return op.call(kernel, inputs=(0, 1, 2))


LOWERINGS = {"ONE_HOT": lower_one_hot}
