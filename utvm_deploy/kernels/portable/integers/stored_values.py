"""Operators of two inputs that ignore quantization: BITWISE_XOR, RIGHT_SHIFT, DIV, FLOOR_MOD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.integers.elementwise import Broadcast, Scalars, broadcast_call


@dataclass(frozen=True)
class BroadcastXor(Broadcast):
    """BITWISE_XOR of the stored values."""

    what: ClassVar[str] = "xor"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        bits = left ^ right
        return bits if isinstance(bits, int) else bits.astype(self.dtype)


@dataclass(frozen=True)
class BroadcastRightShift(Broadcast):
    """RIGHT_SHIFT: a shift below 0 counts as 0, one beyond the type as all its bits but one."""

    what: ClassVar[str] = "right_shift"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        most = element_type(self.dtype).bits - 1
        if isinstance(left, int):
            return left >> max(0, min(right, most))
        bits = tirx.max(tirx.min(right, most), 0)
        # An unsigned value is at least 0 in int32, so that this shift is right for all types.
        return (left >> bits).astype(self.dtype)


@dataclass(frozen=True)
class BroadcastFloorMod(Broadcast):
    """FLOOR_MOD of the stored values: the remainder has the divisor's sign."""

    what: ClassVar[str] = "floor_mod"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        if isinstance(left, int):
            return left % right if right else 0
        # These divisions may trap: by 0, and of the least value by -1. By 1, the result is also 0.
        stops = tirx.any(right.equal(0), right.equal(-1))
        divisor = tirx.if_then_else(stops, tirx.const(1, self.wide), right)
        return tirx.floormod(left, divisor).astype(self.dtype)


@dataclass(frozen=True)
class BroadcastQuotient(Broadcast):
    """DIV of int32: the quotient without its fraction."""

    what: ClassVar[str] = "quotient"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        # These divisions may trap: by 0, and of the least value by -1.
        stops = tirx.any(right.equal(0), right.equal(-1))
        divisor = tirx.if_then_else(stops, tirx.const(1, self.wide), right)
        zero = tirx.const(0, "uint32")
        negative = (zero - left.astype("uint32")).astype(self.wide)
        whole = tirx.truncdiv(left, divisor)
        opposite = tirx.if_then_else(right.equal(-1), negative, whole)
        return tirx.if_then_else(right.equal(0), tirx.const(0, self.wide), opposite)


_KERNELS: dict[str, type[Broadcast]] = {
    "BITWISE_XOR": BroadcastXor,
    "DIV": BroadcastQuotient,
    "FLOOR_MOD": BroadcastFloorMod,
    "RIGHT_SHIFT": BroadcastRightShift,
}


def lower_stored_values(op: Operation) -> KernelCall:
    """BITWISE_XOR, RIGHT_SHIFT, DIV and FLOOR_MOD."""
    return broadcast_call(op, _KERNELS[op.kind], {})


LOWERINGS = dict.fromkeys(_KERNELS, lower_stored_values)
