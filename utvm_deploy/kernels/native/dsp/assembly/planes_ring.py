"""Fills the planes of a depthwise convolution: ring buffers with rows of the image as int16."""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import function_text, helper

#: Channels whose bytes are widened together.
QUAD = 4
_WIDEN_PARAMETERS = """
const int8_t *from, int16_t *to, int32_t pixels, int32_t quads, int32_t pitch, int32_t plane_bytes,
int32_t border
"""
_MOVE_PARAMETERS = (
    "int16_t *planes, int32_t channels, int32_t words, int32_t from_bytes, int32_t plane_bytes"
)


class _Slots(StackFrame):
    """What the widening routine keeps on the stack."""

    source: Slot  # the next four channels
    target: Slot  # the next four planes
    pixels: Slot
    quads_left: Slot
    border: Slot  # in each byte of a word


@code_cache
def ring_text(core: str) -> str:
    """The C text of ``utvm_slide`` and what it calls, ordered for a core."""
    widen = Assembler(core, _WIDEN_PARAMETERS)
    _widen_row(widen)
    move = Assembler(core, _MOVE_PARAMETERS)
    _move_rows(move)
    texts = function_text("utvm_widen_planes", widen), function_text("utvm_move_rows", move)
    return "\n".join([*texts, helper("utvm_slide")])


def _widen_row(a: Assembler) -> None:
    """Widen a row of the image: each turn does four pixels of four channels.

    Two pixels become one word of each of four planes. An odd number of pixels ends with the border.
    """
    a.enter(frame=_Slots)
    a.ldr("r10", a.stack_argument("pitch"))
    a.ldr("lr", a.stack_argument("plane_bytes"))
    a.ldr("r4", a.stack_argument("border"))
    a.mov("r5", 0x01010101)
    a.uxtb("r4", "r4")
    a.mul("r4", "r4", "r5")
    a.str("r4", _Slots.border)
    a.strd("r0", "r1", _Slots.source)
    a.strd("r2", "r3", _Slots.pixels)
    with a.loop("gt"):  # four more channels
        a.ldrd("r0", "r1", _Slots.source)
        a.ldr("r2", _Slots.pixels)
        a.add("r4", "r0", QUAD)
        a.add("r5", "r1", "lr", "lsl #2")
        a.strd("r4", "r5", _Slots.source)
        a.add("r3", "r1", "lr", "lsl #1")
        a.subs("r2", "r2", 4)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            _transpose_pixels(a, "r4", "r5", "r8", "r9")
            _transpose_pixels(a, "r6", "r7", "r11", "r12")
            a.subs("r2", "r2", 4)
        # The last pixels without loops: each branch goes the same way for all channels.
        a.tst("r2", 2)
        with a.unless("eq"), a.scheduled():
            _transpose_pixels(a, "r4", "r5", "r8", "r9")
        a.tst("r2", 1)
        with a.unless("eq"), a.scheduled():
            a.ldr("r4", at("r0"))
            a.ldr("r5", _Slots.border)
            _transpose_words(a, "r4", "r5", "r8", "r9")
        a.ldr("r2", _Slots.quads_left)
        a.subs("r2", "r2", 1)
        a.str("r2", _Slots.quads_left)
    a.leave()


def _transpose_pixels(a: Assembler, left: str, right: str, third: str, fourth: str) -> None:
    """Four channels of the next two pixels of r0, in four registers."""
    a.ldr(left, at("r0"))
    a.ldr(right, at("r0", "r10"))
    a.add("r0", "r0", "r10", "lsl #1")
    _transpose_words(a, left, right, third, fourth)


def _transpose_words(a: Assembler, left: str, right: str, third: str, fourth: str) -> None:
    """Store four channels of two pixels: a word of each plane from r1 and r3 on."""
    # Both pixels of two neighbouring channels, and each channel of them.
    a.pkhbt(third, left, right, "lsl #16")
    a.pkhtb(fourth, right, left, "asr #16")
    a.sxtb16(left, third)
    a.sxtb16(third, third, "ror #8")
    a.sxtb16(right, fourth)
    a.sxtb16(fourth, fourth, "ror #8")
    a.str(third, at("r1", "lr"))
    a.str(fourth, at("r3", "lr"))
    a.str(left, post("r1", 4))
    a.str(right, post("r3", 4))


def _move_rows(a: Assembler) -> None:
    """In each plane, move words from ``from_bytes`` after its start to the start."""
    a.enter(("r4-r10", "lr"))
    a.ldr("lr", a.stack_argument("plane_bytes"))
    with a.loop("gt"):
        a.mov("r4", "r0")
        a.add("r5", "r0", "r3")
        a.subs("r6", "r2", 8)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            _move_words(a, 8)
            a.subs("r6", "r6", 8)
        # The rest without loops: each branch goes the same way in every plane.
        for words in (4, 2, 1):
            a.tst("r6", words)
            with a.unless("eq"), a.scheduled():
                _move_words(a, words)
        a.add("r0", "r0", "lr")
        a.subs("r1", "r1", 1)
    a.leave()


def _move_words(a: Assembler, words: int) -> None:
    """Move words from r5 to r4, and both addresses past them."""
    for first in range(0, words, 4):
        places = [(f"r{7 + n}", 4 * (first + n)) for n in range(min(words - first, 4))]
        for register, offset in places:
            a.ldr(register, at("r5", offset))
        for register, offset in places:
            a.str(register, at("r4", offset))
    a.add("r5", "r5", 4 * words)
    a.add("r4", "r4", 4 * words)
