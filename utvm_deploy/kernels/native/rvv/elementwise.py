"""ADD, SUB and MUL of int8 in vectors of RISC-V.

The numbers are those of ``scaled_call``. Every right shift is by 1 or more, as VSSRA needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from utvm_deploy.kernels.native.elementwise import (
    ADD,
    MULTIPLY,
    ElementwiseKernel,
    Loop,
    loop_parameters,
    scaled_text,
)
from utvm_deploy.kernels.native.rvv.blocks import Block, Routine

#: Operation -> the registers of its numbers, in their order.
_REGISTERS = {
    ADD: ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11"),
    MULTIPLY: ("s0", "s1", "s5", "s6", "s7", "s9", "s10"),
}
_BLOCK = Block(2)
_VALUE, _OTHER = "v24", "v8"


@dataclass(frozen=True)
class VectorElementwise(ElementwiseKernel):
    """``operation`` is add, for SUB, too, or multiply."""

    family: ClassVar[str] = "rvv"

    @property
    def loop(self) -> Loop:
        why = "Zve32x assembly, 2 registers of elements"
        return Loop(f"utvm_rvv_{self.operation}", len(_REGISTERS[self.operation]), why)

    def loop_texts(self, core: str) -> tuple[str, ...]:
        portable = scaled_text(self.operation, self.dtype)
        return (_routine(self.operation).c_function(self.loop.function, portable),)


@lru_cache(maxsize=2)
def _routine(operation: str) -> Routine:
    """``count`` elements on both sides."""
    registers = _REGISTERS[operation]
    lines = [f"lw {name}, {4 * n}(a2)" for n, name in enumerate(registers)]
    lines += [f"neg {name}, {name}" for name in ("s2", "s6") if name in registers]
    lines += ["blez a4, 2f", "1:", f"vsetvli t0, a4, {_BLOCK.bits32}"]
    # Bytes may overlap at the end of the wider group only.
    for wide, narrow, source in ((_VALUE, "v30", "a0"), (_OTHER, "v14", "a1")):
        lines += [f"vle8.v {narrow}, ({source})", f"vsext.vf4 {wide}, {narrow}"]
    lines += _sum() if operation == ADD else _product()
    lines += [*_requantized("s5", "s6"), *_BLOCK.narrowed([_VALUE])]
    lines += [f"vsadd.vx {_VALUE}, {_VALUE}, s7"]
    lines += _BLOCK.store([_VALUE], ("s9", "s10"), "a3", "zero", "t1")
    lines += ["sub a4, a4, t0", *(f"add {p}, {p}, t0" for p in ("a0", "a1", "a3"))]
    return Routine(", ".join(loop_parameters("int8")), [*lines, "bnez a4, 1b", "2:"])


def _sum() -> Iterator[str]:
    """The value becomes its summand, and the sum of both sides."""
    yield from (f"vmul.vx {_VALUE}, {_VALUE}, s8", f"vadd.vx {_VALUE}, {_VALUE}, s0")
    yield from _requantized("s1", "s2")
    yield from (f"vmul.vx {_VALUE}, {_VALUE}, s11", f"vmacc.vx {_VALUE}, s3, {_OTHER}")
    yield f"vadd.vx {_VALUE}, {_VALUE}, s4"


def _product() -> Iterator[str]:
    """The value becomes the product of both sides, less their zero points."""
    yield from (f"vadd.vx {_VALUE}, {_VALUE}, s0", f"vadd.vx {_OTHER}, {_OTHER}, s1")
    yield f"vmul.vv {_VALUE}, {_VALUE}, {_OTHER}"


def _requantized(multiplier: str, shift: str) -> Iterator[str]:
    """Scale the value in place."""
    yield from (f"vsmul.vx {_VALUE}, {_VALUE}, {multiplier}", f"vmslt.vx v0, {_VALUE}, zero")
    yield from (f"vadd.vi {_VALUE}, {_VALUE}, -1, v0.t", f"vssra.vx {_VALUE}, {_VALUE}, {shift}")
