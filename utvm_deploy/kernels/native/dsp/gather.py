"""Gathers the patches of ``gemm.py``: what windows see, as int16.

Rows of a window whose bytes are a multiple of four are widened straight from the image. The rows of
other windows are first copied to a line of bytes, one after the other, by words that overlap.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.native.dsp.code import function_text, helper
from utvm_deploy.kernels.native.dsp.tile import PIXELS

_WIDEN_PARAMETERS = """
int16_t *patches, const int8_t *bytes, int32_t quads, int32_t rows, int32_t pitch
"""
_LINE_PARAMETERS = """
int16_t *patches, const int8_t *bytes, int8_t *line, int32_t quads, int32_t rows, int32_t pitch,
int32_t run
"""

_PHASE_BYTES = 4 * PIXELS
_QUAD_BYTES = 2 * _PHASE_BYTES
_PAIRS = (("r4", "r5"), ("r6", "r7"), ("r12", "lr"))


@lru_cache(maxsize=8)
def gather_text(core: str) -> str:
    """The C text of ``utvm_gather`` and what it calls, ordered for a core."""
    rows = Assembler(timing_of(core), _WIDEN_PARAMETERS)
    _widen_rows(rows)
    line = Assembler(timing_of(core), _LINE_PARAMETERS)
    _widen_line(line)
    texts = function_text("utvm_widen", rows), function_text("utvm_widen_line", line)
    return "\n".join([*texts, helper("utvm_gather")])


def _widen_rows(a: Assembler) -> None:
    """Widen ``rows`` of ``quads`` times four bytes, ``pitch`` bytes apart."""
    a.enter(("r4-r10", "lr"))
    a.ldr("r9", a.stack_argument("pitch"))
    a.mov("r8", "r1")
    with a.loop("ne"):  # a row
        a.subs("r10", "r2", 4)
        a.mov("r1", "r8")
        with a.unless("lt"):
            _widen_quads(a, 4, "r10", "ge")
        a.adds("r10", 4)
        with a.unless("eq"):
            _widen_quads(a, 1, "r10", "ne")
        a.add("r8", "r9")
        a.subs("r3", 1)
    a.leave()


def _widen_quads(a: Assembler, quads: int, left: str, again: str) -> None:
    """Widen ``quads`` times four bytes from r1 on to r0, until the quads that are left say so."""
    with a.loop(again, aligned=True), a.scheduled(is_loop=True):
        for quad in range(quads):
            low, high = _PAIRS[quad % len(_PAIRS)]
            a.ldr(low, post("r1", 4))
            a.sxtb16(high, low, "ror #8")
            a.sxtb16(low, low)
            a.str(low, at("r0", quad * _QUAD_BYTES))
            a.str(high, at("r0", quad * _QUAD_BYTES + _PHASE_BYTES))
        a.add("r0", "r0", quads * _QUAD_BYTES)
        a.subs(left, left, quads)


def _widen_line(a: Assembler) -> None:
    """Copy ``rows`` of ``run`` bytes to ``line``, by up to three bytes more, and widen that."""
    a.enter(("r3-r11", "lr"))  # r3: the quads, for the end
    a.load(r7=a.stack_argument("rows"), r8=a.stack_argument("pitch"), r9=a.stack_argument("run"))
    a.add("r10", "r9", 3)
    a.lsr("r10", "r10", 2)  # words of a row
    a.mov("r11", "r2")
    with a.loop("ne"):  # a row; r12 is where it is read, lr where it is written
        a.mov("r12", "r1")
        a.mov("lr", "r11")
        a.subs("r6", "r10", 4)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            for number, register in enumerate(("r3", "r4", "r5", "r3")):
                a.ldr(register, at("r12", 4 * number))
                a.str(register, at("lr", 4 * number))
            a.add("r12", "r12", 16)
            a.add("lr", "lr", 16)
            a.subs("r6", "r6", 4)
        a.tst("r6", 2)
        with a.unless("eq"), a.scheduled():
            for number, register in enumerate(("r3", "r4")):
                a.ldr(register, at("r12", 4 * number))
            for number, register in enumerate(("r3", "r4")):
                a.str(register, at("lr", 4 * number))
            a.add("r12", "r12", 8)
            a.add("lr", "lr", 8)
        a.tst("r6", 1)
        with a.unless("eq"):
            a.ldr("r3", at("r12"))
            a.str("r3", at("lr"))
        a.add("r11", "r11", "r9")
        a.add("r1", "r1", "r8")
        a.subs("r7", "r7", 1)
    a.mov("r1", "r2")
    a.ldr("r10", at("sp"))
    _widen_quads(a, 2, "r10", "gt")
    a.leave()
