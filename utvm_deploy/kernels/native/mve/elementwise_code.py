"""ADD, SUB and MUL of as many elements on both sides in Helium: four in a vector, the rest masked.

One of ADD's sides has the scale one half in the reference: it is shifted, and only the other one
requantized. SUB is ADD with a sign for each side. Every right shift is by one or more, so one off
all negative values makes VRSHL round halves away from zero.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.mve.code import CONDITION

PARAMETERS = (
    "const int8_t *first",
    "const int8_t *second",
    "const int32_t *numbers",
    "int8_t *output",
    "int32_t count",
)
ADD, MULTIPLY = "utvm_mve_add", "utvm_mve_multiply"
#: As they stand in ``numbers``; ADD requantizes ``first * factor + start``, times ``sign``.
NUMBERS = {
    ADD: (
        *("start", "multiplier", "shift", "other_factor", "offset"),
        *("output_multiplier", "output_shift", "zero_point", "factor", "low", "high"),
        "sign",
    ),
    MULTIPLY: (
        *("first_offset", "second_offset", "output_multiplier", "output_shift", "zero_point"),
        *("low", "high"),
    ),
}
# Where those that stay in core registers are; the others are spread over vectors.
_PLACES = {
    ADD: ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "q3", "q4", "q5", "q6"),
    MULTIPLY: ("r4", "r5", "r9", "r10", "r11", "q4", "q5"),
}
_SAVED_BYTES = 36 + 48


#: Type of the elements -> loads of four, their stores, and the bytes of four.
_ACCESS = {"int8": ("vldrb.s32", "vstrb.32", 4), "int16": ("vldrh.s32", "vstrh.32", 8)}


def function_of(name: str, dtype: str) -> str:
    """The C function of ADD or MULTIPLY."""
    return name if dtype == "int8" else f"{name}_{dtype}"


@lru_cache(maxsize=4)
def text(name: str, dtype: str = "int8") -> str:
    """The C text of ADD or MULTIPLY."""
    ctype = f"{dtype}_t"
    body = replaced(family_text("mve", name), ("int8_t", ctype, 1))
    parameters = replaced("\n".join(PARAMETERS), ("int8_t", ctype, 3)).split("\n")
    lines = _lines(name, dtype)
    return naked_function(function_of(name, dtype), parameters, lines, body, CONDITION)


def _lines(name: str, dtype: str) -> list[str]:
    load, store, step = _ACCESS[dtype]
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d13}",
        f"ldr r12, [sp, #{_SAVED_BYTES}]",
        *(line for word, place in enumerate(_PLACES[name]) for line in _loaded(place, 4 * word)),
        "dlstp.32 lr, r12",
        "1:",
        f"{load} q0, [r0], #{step}",
        f"{load} q1, [r1], #{step}",
        *(_sum() if name == ADD else _product()),
        *_rounded("r9", "r10"),
        "vadd.i32 q0, q0, r11",
        "vmax.s32 q0, q0, q4",
        "vmin.s32 q0, q0, q5",
        f"{store} q0, [r3], #{step}",
        "letp lr, 1b",
        "vpop {d8-d13}",
        "pop {r4-r11, pc}",
    ]


def _loaded(place: str, offset: int) -> list[str]:
    if place.startswith("r"):
        return [f"ldr {place}, [r2, #{offset}]"]
    return [f"ldr lr, [r2, #{offset}]", f"vdup.32 {place}, lr"]


def _sum() -> list[str]:
    return [
        "vmlas.s32 q0, q3, r4",
        *_rounded("r5", "r6"),
        "vmlas.s32 q0, q6, r8",
        "vmla.s32 q0, q1, r7",
    ]


def _product() -> list[str]:
    return ["vadd.i32 q0, q0, r4", "vadd.i32 q1, q1, r5", "vmul.i32 q0, q0, q1"]


def _rounded(multiplier: str, shift: str) -> list[str]:
    return [
        f"vqrdmulh.s32 q0, q0, {multiplier}",
        "vshr.s32 q2, q0, #31",
        "vadd.i32 q0, q0, q2",
        f"vrshl.s32 q0, {shift}",
    ]
