"""ADD, SUB and MUL of int8 and int16 in Helium: four elements in a vector, the rest masked.

Of a sum, the side with the scale one half is only shifted; the other side is requantized. SUB is
ADD with a sign for each side. Every right shift is by 1 or more. So 1 is taken off negative values,
and VRSHL rounds halves away from zero.
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
    step = 4 * element_type(dtype).unit_bytes
    a = Assembler(CORTEX_M55, loop_parameters(dtype))
    a.enter(vectors=("d8-d13",))
    a.ldr("r12", a.stack_argument("count"))
    for word, register in enumerate(_REGISTERS[operation]):
        if register.startswith("r"):
            a.ldr(register, at("r2", 4 * word))
        else:
            a.ldr("lr", at("r2", 4 * word))
            a.vdup_32(register, "lr")
    load = a.vldrb_s32 if dtype == "int8" else a.vldrh_s32
    store = a.vstrb_32 if dtype == "int8" else a.vstrh_32
    with a.hardware_loop("dlstp.32", "r12"), a.scheduled(is_loop=True):
        load("q0", post("r0", step))
        load("q1", post("r1", step))
        if operation == ADD:
            _add(a)
        else:
            _multiply(a)
        _requantize(a, "r9", "r10")
        a.vadd_i32("q0", "q0", "r11")
        a.vmax_s32("q0", "q0", "q4")
        a.vmin_s32("q0", "q0", "q5")
        store("q0", post("r3", step))
    a.leave()
    return a


def _add(a: Assembler) -> None:
    """q0 becomes the sum of q0, which is requantized, and q1."""
    a.vmlas_s32("q0", "q3", "r4")  # times the factor, plus the start
    _requantize(a, "r5", "r6")
    a.vmlas_s32("q0", "q6", "r8")  # times the sign, plus the offset
    a.vmla_s32("q0", "q1", "r7")


def _multiply(a: Assembler) -> None:
    """q0 becomes the product of q0 and q1, less their zero points."""
    a.vadd_i32("q0", "q0", "r4")
    a.vadd_i32("q1", "q1", "r5")
    a.vmul_i32("q0", "q0", "q1")


def _requantize(a: Assembler, multiplier: str, shift: str) -> None:
    """Scale q0 in place. Overwrites q2."""
    a.vqrdmulh_s32("q0", "q0", multiplier)
    a.vshr_s32("q2", "q0", 31)
    a.vadd_i32("q0", "q0", "q2")
    a.vrshl_s32("q0", shift)
