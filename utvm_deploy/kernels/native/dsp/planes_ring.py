"""Rows of an image as planes of int16: widened, transposed and moved within their ring."""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.cores.timing import Timing
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    add_shifted,
    extend16,
    load,
    pack_halves,
    pack_tops,
    store,
    store_next,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text, helper

WIDEN = "utvm_widen_planes"
WIDEN_PARAMETERS = (
    "const int8_t *from",
    "int16_t *to",
    "int32_t pixels",
    "int32_t quads",
    "int32_t pitch",
    "int32_t plane_bytes",
    "int32_t border",
)


MOVE = "utvm_move_rows"
MOVE_PARAMETERS = (
    "int16_t *planes",
    "int32_t channels",
    "int32_t words",
    "int32_t from_bytes",
    "int32_t plane_bytes",
)


@lru_cache(maxsize=8)
def slide_text(core: str) -> str:
    """The C text of ``utvm_slide`` and what it calls, ordered for a core."""
    widen = c_text(WIDEN, WIDEN_PARAMETERS, _widen_routine(timing_of(core)))
    move = c_text(MOVE, MOVE_PARAMETERS, _move_routine(timing_of(core)))
    return "\n".join([widen, move, helper("utvm_slide")])


def _widen_routine(timing: Timing) -> Routine:
    """Each turn widens two pixels of four channels, which become a word of each of four planes."""
    r = Routine(timing)
    saved = 36
    r.plain(
        "push {r4-r11, lr}",
        "sub sp, #20",
        f"ldr r10, [sp, #{20 + saved}]",
        f"ldr lr, [sp, #{20 + saved + 4}]",
        f"ldr r4, [sp, #{20 + saved + 8}]",
        "mov r5, #0x01010101",
        "uxtb r4, r4",
        "mul r4, r4, r5",
        "str r4, [sp, #16]",  # a pixel of the border
        "strd r0, r1, [sp]",
        "strd r2, r3, [sp, #8]",
    )
    r.label("1")  # four more channels
    r.plain(
        "ldrd r0, r1, [sp]",
        "ldr r2, [sp, #8]",
        "add r4, r0, #4",
        "add r5, r1, lr, lsl #2",
        "strd r4, r5, [sp]",
        "add r3, r1, lr, lsl #1",
        "subs r2, r2, #2",
        "blt 3f",
    )
    r.label("2", is_loop=True)
    second = [load("r5", "r0", "r10"), add_shifted("r0", "r0", "r10", "lsl #1")]
    r.straight(
        [load("r4", "r0"), *second, *_transposed(), subtract_flags("r2", "r2", 2)], is_loop=True
    )
    r.plain("bge 2b")
    r.label("3")
    r.plain("adds r2, r2, #1", "blt 4f")
    r.straight([load("r4", "r0"), load("r5", "sp", 16), *_transposed()])
    r.label("4")
    r.plain(
        "ldr r2, [sp, #12]",
        "subs r2, r2, #1",
        "str r2, [sp, #12]",
        "bgt 1b",
        "add sp, #20",
        "pop {r4-r11, pc}",
    )
    return r


def _transposed() -> list[Instruction]:
    """Pixels r4 and r5 of four channels -> a word of each plane."""
    return [
        extend16("r6", "r4"),
        extend16("r4", "r4", 8),
        extend16("r7", "r5"),
        extend16("r5", "r5", 8),
        pack_halves("r8", "r6", "r7"),
        pack_tops("r7", "r7", "r6"),
        pack_halves("r9", "r4", "r5"),
        pack_tops("r5", "r5", "r4"),
        store("r9", "r1", "lr"),
        store("r5", "r3", "lr"),
        store_next("r8", "r1", 4),
        store_next("r7", "r3", 4),
    ]


def _move_routine(timing: Timing) -> Routine:
    """In each plane, some words from farther behind to the front."""
    r = Routine(timing)
    r.plain("push {r4-r10, lr}", "ldr lr, [sp, #32]")
    r.label("1")
    r.plain("mov r4, r0", "add r5, r0, r3", "subs r6, r2, #8", "blt 3f")
    r.label("2", is_loop=True)
    r.straight([*_moved(8), subtract_flags("r6", "r6", 8)], is_loop=True)
    r.plain("bge 2b")
    r.label("3")
    # What is left, without loops: each branch goes the same way in every plane.
    for words in (4, 2, 1):
        r.plain(f"tst r6, #{words}", "beq 4f")
        r.straight(_moved(words))
        r.label("4")
    r.plain("add r0, r0, lr", "subs r1, r1, #1", "bgt 1b", "pop {r4-r10, pc}")
    return r


def _moved(words: int) -> list[Instruction]:
    """Words from r5 to r4, which both move behind them."""
    code: list[Instruction] = []
    for first in range(0, words, 4):
        places = [(f"r{7 + n}", 4 * (first + n)) for n in range(min(words - first, 4))]
        code += [load(register, "r5", place) for register, place in places]
        code += [store(register, "r4", place) for register, place in places]
    return [*code, add("r5", "r5", 4 * words), add("r4", "r4", 4 * words)]
