"""Weights of int4 as halves of bytes: the assembly that unpacks a line of ``packed_halves``.

Each half has 8 added, so that SSUB8 of eights gives four signed bytes.
"""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import at

_WORD = 4
#: Bytes of a packed line are a multiple of these: of two words.
UNIT_BYTES = 2 * _WORD
_EIGHTS, _LOWER = 0x08080808, 0x0F0F0F0F


def unpack(a: Assembler, source: str, end: str, target: str) -> None:
    """Unpack from ``source`` up to ``end``; ``target`` ends after the last byte of int8.

    Overwrites r3 to r8. There are at least ``UNIT_BYTES``.
    """
    a.mov("r8", _EIGHTS)
    with a.loop("lo", aligned=True), a.scheduled(is_loop=True):
        for number, (low, high) in enumerate((("r4", "r5"), ("r6", "r7"))):
            a.ldr("r3", at(source, _WORD * number))
            a.and_(low, "r3", _LOWER)
            a.lsr(high, "r3", 4)
            a.and_(high, high, _LOWER)
            a.ssub8(low, low, "r8")
            a.ssub8(high, high, "r8")
            a.strd(low, high, at(target, 2 * _WORD * number))
        a.add(source, source, UNIT_BYTES)
        a.add(target, target, 2 * UNIT_BYTES)
        a.cmp(source, end)
