"""MUL of int16 for cores with the DSP extension: four elements at a time.

The routine doubles products, so that the upper words of products with the multiplier are what the
reference rounds to. The doubled product of -32768 and -32768 does not fit: it saturates, and
becomes one less. The kernel is built only if this changes no output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.mnemonics import post
from utvm_deploy.kernels.native.dsp.code import clamp
from utvm_deploy.kernels.native.elementwise import ElementwiseKernel, elementwise_call
from utvm_deploy.kernels.native.layer_tables import scalars
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT

_NAME = "utvm_wide_multiply"
_PARAMETERS = (
    "const int16_t *left",
    "const int16_t *right",
    "const int32_t *numbers",
    "int16_t *output",
    "int32_t count",
)


@dataclass(frozen=True)
class DspInt16Multiply(ElementwiseKernel):
    """``numbers`` are multiplier, rounding, right shift and both limits."""

    family: ClassVar[str] = "dsp"

    @property
    def why(self) -> str:
        return "DSP assembly, four elements at a time"

    @property
    def number_count(self) -> int:
        return 5

    @property
    def loop(self) -> str:
        return f"{_NAME}_all"

    def loop_texts(self, core: str) -> tuple[str, ...]:
        return _routine_text(core), shared_text(self.loop)


def int16_multiply_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    numbers = scalars(call)
    multiplier, right = numbers["output_multiplier"], -numbers["output_shift"]
    low, high = numbers["low"], numbers["high"]
    if not SMALLEST_SHIFT <= right <= LARGEST_SHIFT:
        return f"the output's scale needs a right shift by {right}"
    rounding = 1 << (right - 1)
    saturated = ((2**31 - 1) * multiplier + (rounding << 32) + (1 << 31)) >> (32 + right)
    largest = requantized(1 << 30, multiplier, -right)
    if min(saturated, high) != min(largest, high):
        return "the largest product would not be exact"
    words = (multiplier, rounding, right, low, high)
    return elementwise_call(call, DspInt16Multiply, "multiply", words)


@lru_cache(maxsize=8)
def _routine_text(core: str) -> str:
    """The C text of the routine for a multiple of four elements, ordered for a core."""
    a = Assembler(timing_of(core), _PARAMETERS)
    a.enter()
    a.ldm("r2", ("r4", "r5", "r6", "r8", "r9"))
    a.ldr("r2", a.stack_argument("count"))
    a.pkhbt("r8", "r8", "r8", "lsl #16")
    a.pkhbt("r9", "r9", "r9", "lsl #16")
    a.add("r7", "r0", "r2", "lsl #1")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        a.ldr("r10", post("r0", 4))
        a.ldr("r11", post("r1", 4))
        _multiply_two(a, "r12", "r10", "r11", "r2")
        a.ldr("lr", post("r0", 4))
        a.ldr("r11", post("r1", 4))
        a.str("r12", post("r3", 4))
        _multiply_two(a, "r10", "lr", "r11", "r2")
        a.str("r10", post("r3", 4))
        a.cmp("r0", "r7")
    a.leave()
    return a.c_function(_NAME, shared_text(_NAME), CONDITION)


def _multiply_two(a: Assembler, result: str, left: str, right: str, spare: str) -> None:
    """Two outputs in ``result`` from two words; overwrites the others."""
    a.smulbb(result, left, right)
    a.smultt(left, left, right)
    for value, temporary in ((result, spare), (left, right)):
        a.qadd(value, value, value)
        a.add(temporary, "r5", value, "asr #31")
        a.smmlar(value, value, "r4", temporary)
        a.asr(value, value, "r6")
        a.ssat(value, 16, value)
    a.pkhbt(result, result, left, "lsl #16")
    clamp(a, (result,), "r8", "r9", spare, bits=16)
