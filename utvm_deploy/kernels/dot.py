"""Products of a vector with the rows of a matrix of int8: what LSTM, SVDF and BATCH_MATMUL sum up.

Four rows at a time: of each word of the vector, which is split once, and of each row's word come
four products. The text serves every core; those with the DSP extension take its assembly.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.kernels.dsp.code import CONDITION
from utvm_deploy.kernels.micro.assembly import (
    compare,
    extend16,
    load_next,
    multiply_add,
)
from utvm_deploy.kernels.micro.order import timing_of
from utvm_deploy.kernels.micro.routine import Routine, naked_function
from utvm_deploy.kernels.micro.source import shared_text

ROWS = 4
_PARAMETERS = (
    "const int8_t *vector",
    "const int8_t *matrix",
    "int32_t pitch",
    "int32_t count",
    "int32_t *sums",
)
_SAVED_BYTES = 36
_POINTERS = ("r1", "r4", "r5", "r6")
_SUMS = ("r7", "r8", "r9", "r10")


@lru_cache(maxsize=8)
def dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_dot_rows``, ordered for a core."""
    r = Routine(timing_of(core))
    r.plain(
        "push {r4-r11, lr}",
        "add r4, r1, r2",
        "add r5, r4, r2",
        "add r6, r5, r2",
        "add r3, r0, r3",
        *(f"mov {register}, #0" for register in _SUMS),
    )
    r.label("1", is_loop=True)
    code = [load_next("r12", "r0", 4), extend16("r11", "r12", 8), extend16("r12", "r12")]
    code.append(compare("r0", "r3"))
    for pointer, total in zip(_POINTERS, _SUMS, strict=True):
        code += [
            load_next("lr", pointer, 4),
            extend16("r2", "lr", 8),
            extend16("lr", "lr"),
            multiply_add("smlad", total, "lr", "r12", total),
            multiply_add("smlad", total, "r2", "r11", total),
        ]
    r.straight(code, is_loop=True)
    r.plain(
        "bne 1b",
        f"ldr r0, [sp, #{_SAVED_BYTES}]",
        "stmia r0, {r7-r10}",
        "pop {r4-r11, pc}",
    )
    four = naked_function(
        "utvm_dot_four", _PARAMETERS, r.lines, shared_text("utvm_dot_four"), CONDITION
    )
    return four, shared_text("utvm_dot_rows")
