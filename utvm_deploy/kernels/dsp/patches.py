"""What a convolution's windows see, gathered as int16 in the layout of ``gemm.py``.

Rows of bytes whose length is a multiple of four are widened straight from the image; other depths
go through a line of bytes, of which scratch has one.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.cores.timing import Timing
from utvm_deploy.kernels.dsp.assembly import (
    Instruction,
    add,
    extend16,
    load_next,
    store,
    subtract_flags,
)
from utvm_deploy.kernels.dsp.gemm import PIXELS
from utvm_deploy.kernels.dsp.order import timing_of
from utvm_deploy.kernels.dsp.routine import Routine, c_text, helper

NAME = "utvm_widen"
PARAMETERS = (
    "int16_t *patches",
    "const int8_t *bytes",
    "int32_t quads",
    "int32_t rows",
    "int32_t pitch",
)

_PHASE_BYTES = 4 * PIXELS
_QUAD_BYTES = 2 * _PHASE_BYTES
_UNROLLED = 4
_REGISTERS = (("r4", "r5"), ("r6", "r7"), ("r12", "lr"))


@lru_cache(maxsize=8)
def gather_text(core: str) -> str:
    """The C text of ``utvm_gather``, ordered for a core."""
    gather = helper("utvm_gather")
    return c_text(NAME, PARAMETERS, _routine(timing_of(core))) + "\n" + gather


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
