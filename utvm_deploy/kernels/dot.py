"""Products of a vector with the rows of a matrix of int8: what LSTM, SVDF and BATCH_MATMUL sum up.

Four rows at a time: of each word of the vector, which is split once, and of each row's word come
four products. The text serves every core; those with the DSP extension take its assembly. It is
made here for vectors of int16, too (``wide_rows.py``), which need no splitting.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.kernels.dsp.code import CONDITION
from utvm_deploy.kernels.micro.assembly import (
    Instruction,
    compare,
    extend16,
    load_next,
    multiply_add,
)
from utvm_deploy.kernels.micro.order import timing_of
from utvm_deploy.kernels.micro.routine import Routine, naked_function
from utvm_deploy.kernels.micro.source import shared_text

ROWS = 4
_SAVED_BYTES = 36
_POINTERS = ("r1", "r4", "r5", "r6")
_SUMS = ("r7", "r8", "r9", "r10")


@lru_cache(maxsize=8)
def dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_dot_rows``, ordered for a core."""
    # r12 gets bytes 0 and 2 of the vector's word, r11 bytes 1 and 3.
    split = [load_next("r12", "r0", 4), extend16("r11", "r12", 8), extend16("r12", "r12")]
    four = _four_rows("utvm_dot_four", core, "int8_t", split, ("r12", "r11"))
    return four, shared_text("utvm_dot_rows")


@lru_cache(maxsize=8)
def wide_dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_wide_rows``, of a vector of int16, ordered for a core."""
    halves = ("r11", "r12")
    loads = [load_next(register, "r0", 4) for register in halves]
    four = _four_rows("utvm_wide_four", core, "int16_t", loads, halves)
    return four, shared_text("utvm_wide_rows")


def _four_rows(
    name: str, core: str, element: str, step: list[Instruction], halves: tuple[str, str]
) -> str:
    """The function ``name``: four sums, of as many products as ``count``, a multiple of four.

    ``step`` loads four elements of the vector into ``halves``, which multiply the even and the odd
    bytes of a row's word.
    """
    r = Routine(timing_of(core))
    r.plain(
        "push {r4-r11, lr}",
        "add r4, r1, r2",
        "add r5, r4, r2",
        "add r6, r5, r2",
        f"add r3, r0, r3{', lsl #1' if element == 'int16_t' else ''}",
        *(f"mov {register}, #0" for register in _SUMS),
    )
    r.label("1", is_loop=True)
    code = [*step, compare("r0", "r3")]
    for pointer, total in zip(_POINTERS, _SUMS, strict=True):
        code += [
            load_next("lr", pointer, 4),
            extend16("r2", "lr", 8),
            extend16("lr", "lr"),
            multiply_add("smlad", total, "lr", halves[0], total),
            multiply_add("smlad", total, "r2", halves[1], total),
        ]
    r.straight(code, is_loop=True)
    r.plain(
        "bne 1b",
        f"ldr r0, [sp, #{_SAVED_BYTES}]",
        "stmia r0, {r7-r10}",
        "pop {r4-r11, pc}",
    )
    parameters = (
        f"const {element} *vector",
        "const int8_t *matrix",
        "int32_t pitch",
        "int32_t count",
        "int32_t *sums",
    )
    return naked_function(name, parameters, r.lines, shared_text(name), CONDITION)
