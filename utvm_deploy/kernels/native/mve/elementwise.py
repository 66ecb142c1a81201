"""ADD, SUB and MUL of int8 and int16 in Helium: four elements in a vector, the rest masked.

Of a sum, the side with the scale one half is only shifted; the other side is requantized. SUB is
ADD with a sign for each side. Every right shift is by 1 or more. So 1 is taken off negative values,
and VRSHL rounds halves away from zero.

Four elements are begun while the four before them are finished, since products and sums have
different pipes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.extents import type_label
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.native.elementwise import (
    ADD,
    MULTIPLY,
    ElementwiseKernel,
    Loop,
    loop_parameters,
    scaled_text,
)
from utvm_deploy.kernels.native.mve.shared_blocks import CONDITION
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: Operation -> the registers of its numbers, in their order. A vector register has the number in
#: every lane.
_REGISTERS = {
    ADD: ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "q3", "q4", "q5", "q6"),
    MULTIPLY: ("r4", "r5", "r9", "r10", "r11", "q4", "q5"),
}


@dataclass(frozen=True)
class MveElementwise(ElementwiseKernel):
    """``operation`` is add, for SUB, too, or multiply."""

    family: ClassVar[str] = "mve"

    @property
    def loop(self) -> Loop:
        function = f"utvm_mve_{self.operation}{type_label(self.dtype)}"
        why = "Helium assembly, 4 elements in a vector"
        return Loop(function, len(_REGISTERS[self.operation]), why)

    def loop_texts(self, core: str) -> tuple[str, ...]:
        routine = _routine(self.operation, self.dtype)
        portable = scaled_text(self.operation, self.dtype)
        return (routine.c_function(self.loop.function, portable, CONDITION),)


@code_cache
def _routine(operation: str, dtype: str) -> Assembler:
    """``count`` elements on both sides."""
    a = Assembler(CORTEX_M55, loop_parameters(dtype))
    a.enter(vectors=("d8-d15",))
    a.ldr("r12", a.stack_argument("count"))
    for word, register in enumerate(_REGISTERS[operation]):
        if register.startswith("r"):
            a.ldr(register, at("r2", 4 * word))
        else:
            a.ldr("lr", at("r2", 4 * word))
            a.vdup_32(register, "lr")
    ones, others = ("q0", "q1"), ("q2", "q7")
    a.cmp("r12", 4)
    with a.unless("lt"):
        a.sub("r12", "r12", 4)
        a.lsr("r2", "r12", 3)
        _begin(a, operation, dtype, *ones)
        with a.hardware_loop("wls", "r2"), a.scheduled(is_loop=True):
            _finish(a, dtype, *ones)
            _begin(a, operation, dtype, *others)
            _finish(a, dtype, *others)
            _begin(a, operation, dtype, *ones)
        _finish(a, dtype, *ones)
        a.and_("r12", "r12", 7)
    with a.hardware_loop("wlstp.32", "r12"), a.scheduled(is_loop=True):
        _begin(a, operation, dtype, *ones)
        _finish(a, dtype, *ones)
    a.leave()
    return a


def _begin(a: Assembler, operation: str, dtype: str, value: str, other: str) -> None:
    """Load the next four elements of both sides; ``value`` becomes their sum or product."""
    step = 4 * element_type(dtype).unit_bytes
    load = a.vldrb_s32 if dtype == "int8" else a.vldrh_s32
    load(value, post("r0", step))
    if operation == MULTIPLY:
        load(other, post("r1", step))
        a.vadd_i32(value, value, "r4")
        a.vadd_i32(other, other, "r5")
        a.vmul_i32(value, value, other)
        return
    a.vmlas_s32(value, "q3", "r4")  # times the factor, plus the start
    _requantize(a, value, other, "r5", "r6")
    a.vmlas_s32(value, "q6", "r8")  # times the sign, plus the offset
    load(other, post("r1", step))
    a.vmla_s32(value, other, "r7")


def _finish(a: Assembler, dtype: str, value: str, sign: str) -> None:
    """Requantize and store four sums or products."""
    store = a.vstrb_32 if dtype == "int8" else a.vstrh_32
    _requantize(a, value, sign, "r9", "r10")
    a.vadd_i32(value, value, "r11")
    a.vmax_s32(value, value, "q4")
    a.vmin_s32(value, value, "q5")
    store(value, post("r3", 4 * element_type(dtype).unit_bytes))


def _requantize(a: Assembler, value: str, sign: str, multiplier: str, shift: str) -> None:
    """Scale a vector in place."""
    a.vqrdmulh_s32(value, value, multiplier)
    a.vshr_s32(sign, value, 31)
    a.vadd_i32(value, value, sign)
    a.vrshl_s32(value, shift)
