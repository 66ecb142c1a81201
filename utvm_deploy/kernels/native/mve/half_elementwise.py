"""ADD, SUB, MUL and RELU of float16 in Helium: eight elements in a vector, the rest masked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.native.elementwise import (
    LEAST_RUN,
    ElementwiseKernel,
    Loop,
    loop_parameters,
)
from utvm_deploy.kernels.native.fpu.operands import elements
from utvm_deploy.kernels.native.fpu.shared_blocks import limits_table
from utvm_deploy.kernels.native.mve.float_lanes import HALVES, VECTOR_BYTES, half_texts
from utvm_deploy.kernels.native.mve.float_rows import FLOAT_CONDITION
from utvm_deploy.kernels.portable.floats.float_elementwise import FloatOfOne, FloatOfTwo
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: Operation -> the mnemonic, and the function of the format.
_OPERATIONS = {
    "add": ("vadd", "add"),
    "sub": ("vsub", "subtract"),
    "mul": ("vmul", "multiply"),
    "relu": ("", ""),  # of the left side alone
}


@dataclass(frozen=True)
class HalfElementwise(ElementwiseKernel):
    """``operation`` is one of the table above."""

    dtype: str = HALVES.dtype

    family: ClassVar[str] = "mve"

    @property
    def loop(self) -> Loop:
        return Loop(f"utvm_mve_half_{self.operation}", 2, "Helium assembly, 8 elements in a vector")

    def loop_texts(self, core: str) -> tuple[str, ...]:
        own = FLOAT16_ARITHMETIC
        _, function = _OPERATIONS[self.operation]
        value = f"{own.symbol(function)}(left[i], right[i])" if function else "left[i]"
        less, least, most = own.symbol("less"), "(uint16_t)numbers[0]", "(uint16_t)numbers[1]"
        body = f"""\
for (int32_t i = 0; i < count; i++) {{
    uint16_t value = {value};
    value = {less}(value, {least}) ? {least} : value;
    output[i] = {less}({most}, value) ? {most} : value;
}}
{"" if function else "(void)right;"}
"""
        routine = _routine(self.operation)
        return (
            *half_texts(body),
            routine.c_function(self.loop.function, body.strip() + "\n", FLOAT_CONDITION),
        )


@code_cache
def _routine(operation: str) -> Assembler:
    mnemonic, _ = _OPERATIONS[operation]
    a = Assembler(CORTEX_M55, loop_parameters(HALVES.dtype))
    a.enter(vectors=("d8-d15",))
    a.ldr("r12", a.stack_argument("count"))
    a.ldr("r4", at("r2"))
    a.ldr("r5", at("r2", 4))
    a.vdup_16("q6", "r4")
    a.vdup_16("q7", "r5")
    with a.hardware_loop("wlstp.16", "r12"):
        a.vldrh_u16("q0", post("r0", VECTOR_BYTES))
        if mnemonic:
            a.vldrh_u16("q1", post("r1", VECTOR_BYTES))
            HALVES.compute(a, mnemonic, "q0", "q0", "q1")
        a.vcmp_f16("gt", "q6", "q0")
        a.vpsel("q0", "q6", "q0")
        a.vcmp_f16("gt", "q0", "q7")
        a.vpsel("q0", "q7", "q0")
        a.vstrh_16("q0", post("r3", VECTOR_BYTES))
    a.leave()
    return a


def build_half_elementwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """A layer of float32, computed with numbers of float16."""
    portable, arguments = layer.portable.kernel, layer.portable.arguments
    if isinstance(portable, FloatOfOne):
        made = HalfElementwise("relu", (portable.count,), (True,), (True,))
        sides = arguments[0], arguments[0]
    else:
        assert isinstance(portable, FloatOfTwo)
        left, right = portable.follows
        made = HalfElementwise(portable.function, portable.extents, left, right)
        sides = arguments[0], arguments[1]
    if made.run.elements < LEAST_RUN:
        return f"runs of {made.run.elements} elements"
    limits = elements(limits_table(portable.limits), HALVES.dtype)
    numbers = ConstantArgument("numbers", limits.astype(np.int32))
    return KernelCall(made, (*sides, numbers, arguments[-1]))
