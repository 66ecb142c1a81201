"""MUL of int16 for cores with the DSP extension, broadcast or not: four elements at a time.

Products are doubled, so that the upper words of products with the multiplier are what the reference
rounds to; the doubled product of -32768 and itself is one too large, and saturates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.isa.dsp import CONDITION, selected
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add_shifted,
    compare,
    load_next,
    multiply,
    multiply_add,
    pack_halves,
    saturate,
    shift_right,
    simd,
    store_next,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine, naked_function
from utvm_deploy.kernels.native.dsp.pairs import DspPairs
from utvm_deploy.kernels.native.layer_tables import scalars
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT
from utvm_deploy.kernels.portable.elementwise import BroadcastMultiply

_NAME = "utvm_wide_multiply"
_PARAMETERS = (
    "const int16_t *left",
    "const int16_t *right",
    "const int32_t *numbers",
    "int16_t *output",
    "int32_t count",
)
_LEAST_RUN = 4
_SAVED_BYTES = 36


@dataclass(frozen=True)
class Int16Multiply(DspPairs):
    """Runs in which a side may repeat."""

    @property
    def name(self) -> str:
        return f"{super().name.removesuffix('_dsp')}_int16_dsp"

    @property
    def _dtype(self) -> str:
        return "int16"

    @property
    def _numbers(self) -> int:
        return 5

    @property
    def _function(self) -> str:
        return f"{_NAME}_all_runs"

    def texts(self, core: str) -> tuple[str, ...]:
        names = ("int8_t", "int16_t", 5), ("LOOP", f"{_NAME}_all", 3)
        return (
            _four_text(core),
            shared_text(f"{_NAME}_all"),
            replaced(shared_text("utvm_runs"), *names),
        )


def int16_multiply_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the generic one."""
    kernel, numbers = call.kernel, scalars(call)
    assert isinstance(kernel, BroadcastMultiply)
    multiplier, right = numbers["output_multiplier"], -numbers["output_shift"]
    limits = numbers["low"], numbers["high"]
    if not SMALLEST_SHIFT <= right <= LARGEST_SHIFT:
        return f"the output's scale needs a right shift by {right}"
    rounding = 1 << (right - 1)
    saturated = ((2**31 - 1) * multiplier + (rounding << 32) + (1 << 31)) >> (32 + right)
    largest = requantized(1 << 30, multiplier, -right)
    if min(saturated, limits[1]) != min(largest, limits[1]):
        return "the largest product would not be exact"
    made = Int16Multiply("multiply", kernel.extents, kernel.left_follows, kernel.right_follows)
    if made.run[1] < _LEAST_RUN:
        return f"runs of {made.run[1]} elements"
    table = np.array([multiplier, rounding, right, *limits], dtype=np.int32)
    arguments = (*call.arguments[:2], ConstantArgument("numbers", table), call.arguments[-1])
    return replace(call, kernel=made, arguments=arguments)


@lru_cache(maxsize=8)
def _four_text(core: str) -> str:
    """The C text of fours, ordered for a core."""
    r = Routine(timing_of(core))
    r.plain(
        "push {r4-r11, lr}",
        "ldm r2, {r4, r5, r6, r8, r9}",
        f"ldr r2, [sp, #{_SAVED_BYTES}]",
        "pkhbt r8, r8, r8, lsl #16",
        "pkhbt r9, r9, r9, lsl #16",
        "add r7, r0, r2, lsl #1",
    )
    r.label("1", is_loop=True)
    words = [load_next(*place, 4) for place in (("r10", "r0"), ("r11", "r1"))]
    more = [load_next(*place, 4) for place in (("lr", "r0"), ("r11", "r1"))]
    first = _two("r12", "r10", "r11", "r2")
    second = _two("r10", "lr", "r11", "r2")
    stores = [store_next("r12", "r3", 4), store_next("r10", "r3", 4)]
    code = [*words, *first, *more, stores[0], *second, stores[1], compare("r0", "r7")]
    r.straight(code, is_loop=True)
    r.plain("bne 1b", "pop {r4-r11, pc}")
    return naked_function(_NAME, _PARAMETERS, r.lines, shared_text(_NAME), CONDITION)


def _two(made: str, left: str, right: str, spare: str) -> list[Instruction]:
    """Two outputs in ``made`` from two words; overwrites the others."""
    code = [multiply("smulbb", made, left, right), multiply("smultt", left, left, right)]
    for value, other in ((made, spare), (left, right)):
        code += [
            simd("qadd", value, value, value),
            add_shifted(other, "r5", value, "asr #31"),
            multiply_add("smmlar", value, value, "r4", other),
            shift_right(value, value, "r6"),
            saturate(value, value, 16),
        ]
    return [
        *code,
        pack_halves(made, made, left),
        *selected(spare, made, "r8", made, "r8", 16),
        *selected(spare, "r9", made, made, "r9", 16),
    ]
