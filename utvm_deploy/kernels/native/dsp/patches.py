"""What a convolution's windows see, gathered as int16 in the layout of ``gemm.py``.

Rows of bytes whose length is a multiple of four are widened straight from the image; the rows of
other windows are lined up first, by words that overlap, in a line of bytes that scratch has.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.cores.timing import Timing
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    extend16,
    load,
    load_next,
    store,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text, helper
from utvm_deploy.kernels.native.dsp.gemm import PIXELS

NAME = "utvm_widen"
PARAMETERS = (
    "int16_t *patches",
    "const int8_t *bytes",
    "int32_t quads",
    "int32_t rows",
    "int32_t pitch",
)

LINE = "utvm_widen_line"
LINE_PARAMETERS = (
    "int16_t *patches",
    "const int8_t *bytes",
    "int8_t *line",
    "int32_t quads",
    "int32_t rows",
    "int32_t pitch",
    "int32_t run",
)

_PHASE_BYTES = 4 * PIXELS
_QUAD_BYTES = 2 * _PHASE_BYTES
_UNROLLED = 4
_REGISTERS = (("r4", "r5"), ("r6", "r7"), ("r12", "lr"))


@lru_cache(maxsize=8)
def gather_text(core: str) -> str:
    """The C text of ``utvm_gather``, ordered for a core."""
    timing = timing_of(core)
    widen = c_text(NAME, PARAMETERS, _routine(timing))
    line = c_text(LINE, LINE_PARAMETERS, _line_routine(timing))
    return "\n".join([widen, line, helper("utvm_gather")])


def _routine(timing: Timing) -> Routine:
    r = Routine(timing)
    r.plain("push {r4-r10, lr}", "ldr r9, [sp, #32]", "mov r8, r1")
    r.label("1")  # a row
    r.plain("subs r10, r2, #4", "mov r1, r8", "blt 3f")
    r.label("2", is_loop=True)
    code: list[Instruction] = []
    for quad in range(_UNROLLED):
        code += _quad(*_REGISTERS[quad % len(_REGISTERS)], quad * _QUAD_BYTES)
    code += [add("r0", "r0", _UNROLLED * _QUAD_BYTES), subtract_flags("r10", "r10", _UNROLLED)]
    r.straight(code, is_loop=True)
    r.plain("bge 2b")
    r.label("3")
    r.plain(f"adds r10, #{_UNROLLED}", "beq 5f")
    r.label("4", is_loop=True)
    one = [*_quad("r4", "r5", 0), add("r0", "r0", _QUAD_BYTES), subtract_flags("r10", "r10", 1)]
    r.straight(one, is_loop=True)
    r.plain("bne 4b")
    r.label("5")
    r.plain("add r8, r9", "subs r3, #1", "bne 1b", "pop {r4-r10, pc}")
    return r


def _quad(low: str, high: str, offset: int) -> list[Instruction]:
    return [
        load_next(low, "r1", 4),
        extend16(high, low, 8),
        extend16(low, low),
        store(low, "r0", offset),
        store(high, "r0", offset + _PHASE_BYTES),
    ]


def _line_routine(timing: Timing) -> Routine:
    """Rows of ``run`` bytes, read and written as words up to three bytes longer, then widened."""
    r = Routine(timing)
    r.plain(
        "push {r3-r11, lr}",
        "ldr r7, [sp, #40]",  # rows
        "ldr r8, [sp, #44]",
        "ldr r9, [sp, #48]",
        "add r10, r9, #3",
        "lsr r10, r10, #2",  # words of a row
        "mov r11, r2",
    )
    r.label("1")  # a row; r12 and lr are where it is read and written
    r.plain("mov r12, r1", "mov lr, r11", "subs r6, r10, #4", "blt 3f")
    r.label("2", is_loop=True)
    registers = ("r3", "r4", "r5", "r3")
    code: list[Instruction] = []
    for number, register in enumerate(registers):
        code += [load(register, "r12", 4 * number), store(register, "lr", 4 * number)]
    code += [add("r12", "r12", 16), add("lr", "lr", 16), subtract_flags("r6", "r6", 4)]
    r.straight(code, is_loop=True)
    r.plain("bge 2b")
    r.label("3")
    r.plain("tst r6, #2", "beq 4f")
    r.straight(
        [
            *(load("r3", "r12"), load("r4", "r12", 4)),
            *(store("r3", "lr"), store("r4", "lr", 4)),
            *(add("r12", "r12", 8), add("lr", "lr", 8)),
        ]
    )
    r.label("4")
    r.plain("tst r6, #1", "beq 5f", "ldr r3, [r12]", "str r3, [lr]")
    r.label("5")
    r.plain("add r11, r11, r9", "add r1, r1, r8", "subs r7, r7, #1", "bne 1b")
    # The line as a row of the other routine, whose depth is even in quads.
    r.plain("mov r1, r2", "ldr r10, [sp]")
    r.label("6", is_loop=True)
    code = []
    for quad in range(2):
        code += _quad(*_REGISTERS[quad], quad * _QUAD_BYTES)
    code += [add("r0", "r0", 2 * _QUAD_BYTES), subtract_flags("r10", "r10", 2)]
    r.straight(code, is_loop=True)
    r.plain("bgt 6b", "pop {r3-r11, pc}")
    return r
