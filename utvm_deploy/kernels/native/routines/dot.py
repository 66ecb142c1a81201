"""Products of a vector with the rows of a matrix of int8: what LSTM, SVDF and BATCH_MATMUL sum up.

Four rows at a time: of each word of the vector, which is split once, and of each row's word come
four products. The text serves every core; those with the DSP extension take its assembly. It is
made here for vectors of int16, too (``int16x8_products.py``), which need no splitting.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    compare,
    extend16,
    load_next,
    multiply_add,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine, naked_function

ROWS = 4
_SAVED_BYTES = 36
_POINTERS = ("r1", "r4", "r5", "r6")
_SUMS = ("r7", "r8", "r9", "r10")
#: Where four rows begin, r2 bytes from each other; nothing is summed up yet.
_OF_FOUR = (
    "add r4, r1, r2",
    "add r5, r4, r2",
    "add r6, r5, r2",
    *(f"mov {register}, #0" for register in _SUMS),
)


@lru_cache(maxsize=8)
def dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_dot_rows``, ordered for a core."""
    # r12 gets bytes 0 and 2 of the vector's word, r11 bytes 1 and 3.
    split = [load_next("r12", "r0", 4), extend16("r11", "r12", 8), extend16("r12", "r12")]
    fours = _fours("utvm_dot_fours", core, split, ("r12", "r11"))
    return fours, shared_text("utvm_dot_rows")


@lru_cache(maxsize=8)
def wide_dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_wide_rows``, of a vector of int16, ordered for a core."""
    halves = ("r11", "r12")
    loads = [load_next(register, "r0", 4) for register in halves]
    return _four("utvm_wide_four", core, loads, halves), shared_text("utvm_wide_rows")


def _four(name: str, core: str, step: list[Instruction], halves: tuple[str, str]) -> str:
    """The function ``name`` of a vector of int16: four sums, of as many products as ``count``.

    That is a multiple of four. ``step`` loads four elements of the vector into ``halves``, which
    multiply the even and the odd bytes of a row's word.
    """
    r = Routine(timing_of(core))
    r.plain("push {r4-r11, lr}", "add r3, r0, r3, lsl #1", *_OF_FOUR)
    _loop(r, step, halves)
    r.plain(f"ldr r0, [sp, #{_SAVED_BYTES}]", "stmia r0, {r7-r10}", "pop {r4-r11, pc}")
    return naked_function(name, _parameters("int16_t"), r.lines, shared_text(name), CONDITION)


def _fours(name: str, core: str, step: list[Instruction], halves: tuple[str, str]) -> str:
    """The same of a vector of int8, four rows after four: ``fours`` times, at least once."""
    r = Routine(timing_of(core))
    sums, fours = _SAVED_BYTES + 8, _SAVED_BYTES + 12
    r.plain("push {r4-r11, lr}", "push {r2, r3}", "add r3, r0, r3", "2:", *_OF_FOUR)
    _loop(r, step, halves)
    r.plain(
        f"ldr r2, [sp, #{sums}]",
        f"ldr lr, [sp, #{fours}]",
        "ldrd r11, r12, [sp]",
        "stmia r2!, {r7-r10}",
        "sub r0, r0, r12",
        "sub r1, r6, r12",
        f"str r2, [sp, #{sums}]",
        "mov r2, r11",
        "add r1, r1, r11",
        "subs lr, lr, #1",
        f"str lr, [sp, #{fours}]",
        "bne 2b",
        "add sp, sp, #8",
        "pop {r4-r11, pc}",
    )
    parameters = (*_parameters("int8_t"), "int32_t fours")
    return naked_function(name, parameters, r.lines, shared_text(name), CONDITION)


def _parameters(element: str) -> tuple[str, ...]:
    return (
        f"const {element} *vector",
        "const int8_t *matrix",
        "int32_t pitch",
        "int32_t count",
        "int32_t *sums",
    )


def _loop(r: Routine, step: list[Instruction], halves: tuple[str, str]) -> None:
    """The products of all elements up to r3."""
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
    r.plain("bne 1b")
