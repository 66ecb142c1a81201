"""CUMSUM: each element becomes the sum of the elements up to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attributes import CumulativeSum
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import around_axis, label
from utvm_deploy.kernels.contract.lazy_tvm import script, tirx
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.schedules.skeletons import Buffers, DefaultLoops, block, prim_func


@dataclass(frozen=True)
class CumulativeSums(DefaultLoops):
    """CUMSUM along the middle one of three dimensions."""

    extents: tuple[int, int, int]
    exclusive: bool
    reverse: bool
    dtype: str  # int32, int64 or float32

    @property
    def name(self) -> str:
        kind = "_exclusive" * self.exclusive + "_reverse" * self.reverse
        return f"cumsum{kind}_{label(self.extents)}_{self.dtype}"

    def prim_func(self) -> Any:
        outer, length, inner = self.extents
        source, output = (Operand(n, self.extents, self.dtype) for n in ("input", "output"))

        def body(buffers: Buffers) -> None:
            x, y = buffers["input"], buffers["output"]

            def add(i: Any, step: Any, j: Any) -> None:
                at = length - 1 - step if self.reverse else step
                before = at + 1 if self.reverse else at - 1
                # The first step has nothing before it; its index stays inside of the buffer.
                nearest = tirx.min(tirx.max(before, 0), length - 1)
                is_first = step == 0
                total = tirx.Select(is_first, tirx.const(0, self.dtype), y[i, nearest, j])
                added = x[i, nearest if self.exclusive else at, j]
                if self.exclusive:
                    added = tirx.Select(is_first, tirx.const(0, self.dtype), added)
                script.buffer_store(y, self._sum(total, added), [i, at, j])

            block("cumsum", [("i", outer, "S"), ("k", length, "R"), ("j", inner, "S")], add)

        return prim_func([source, output], body)

    def _sum(self, left: Any, right: Any) -> Any:
        """The sum; that of integers wraps around as the reference's does."""
        if self.dtype == "float32":
            return left + right
        unsigned = f"u{self.dtype}"
        return (left.astype(unsigned) + right.astype(unsigned)).astype(self.dtype)


def lower_cumsum(op: Operation) -> KernelCall:
    """CUMSUM along one axis."""
    a, source = op.attributes(CumulativeSum), op.source
    extents = around_axis(source.shape, a.axis)
    return op.call(CumulativeSums(extents, a.exclusive, a.reverse, source.dtype))


LOWERINGS = {"CUMSUM": lower_cumsum}
