"""Integers as they are: ABS, NEG and SIGN; and ADD_N, also of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from utvm_deploy.graph.attribute_values import FLOAT_MAX
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operands import element_count
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.schedules.float_values import limited
from utvm_deploy.kernels.portable.schedules.skeletons import BroadcastLoops, Flags, Unary


@dataclass(frozen=True)
class PlainFunction(Unary):
    """A function of one int32 or int64, whose type the result has."""

    function: str = ""

    @property
    def what(self) -> str:
        return f"{self.function}_plain"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        return _FUNCTIONS[self.function](value)


def _negative(value: Any) -> Any:
    """The least value stays as it is; unsigned, because its overflow is defined."""
    unsigned = f"u{value.dtype}"
    return (tirx.const(0, unsigned) - value.astype(unsigned)).astype(value.dtype)


def _sign(value: Any) -> Any:
    zero, one, below = (tirx.const(number, value.dtype) for number in (0, 1, -1))
    return tirx.Select(value > zero, one, tirx.Select(value < zero, below, zero))


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "abs": lambda value: tirx.Select(value < 0, _negative(value), value),
    "neg": _negative,
    "sign": _sign,
}


# The reference limits each sum to finite numbers.
_FINITE = (-FLOAT_MAX, FLOAT_MAX)


@dataclass(frozen=True)
class Sums(BroadcastLoops):
    """ADD_N: the inputs are added in their order, as the reference does."""

    count: int
    dtype: str

    @property
    def what(self) -> str:
        return f"add_{self.count}"

    @property
    def name(self) -> str:
        return f"{self.what}_{self.extents[0]}_{self.dtype}"

    @property
    def inputs(self) -> Sequence[tuple[str, str, Flags]]:
        return [(f"input_{number}", self.dtype, (True,)) for number in range(self.count)]

    def element_of(self, values: Sequence[Any], scalars: Mapping[str, Any]) -> Any:
        if self.dtype == "float32":
            return reduce(lambda total, value: limited(total + value, _FINITE), values)
        unsigned = [value.astype(f"u{self.dtype}") for value in values]
        return reduce(lambda total, value: total + value, unsigned).astype(self.dtype)


def lower_plain_function(op: Operation) -> KernelCall:
    """ABS, NEG and SIGN of plain integers."""
    dtype = op.result.dtype
    kernel = PlainFunction(element_count(op.result), dtype, dtype, op.kind.lower())
    return op.call(kernel, in_place=[0])


def lower_add_n(op: Operation) -> KernelCall:
    """ADD_N."""
    inputs = range(len(op.operator.inputs))
    kernel = Sums((element_count(op.result),), len(inputs), op.result.dtype)
    return op.call(kernel, inputs=inputs, in_place=list(inputs))


LOWERINGS = {"ADD_N": lower_add_n, "SIGN": lower_plain_function}
