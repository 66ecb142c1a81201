"""The inner block of depthwise convolutions: one pixel of four channels, any window.

A word holds four channels of a pixel; two SXTB16 make it two pairs of halfwords, and each product
takes one half of a pair and one half of a pair of weights. Groups of channels are outermost, so
that one table of weights and scales serves a row of pixels.

Table, in words, for each four channels: taps x [w0 | w2 << 16, w1 | w3 << 16], then bias,
multiplier, offset and shift of the four.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.dsp import selected
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    extend16,
    insert_byte,
    load,
    move,
    multiply_add,
    store,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text
from utvm_deploy.kernels.native.dsp.tile import limits_prologue, scaled
from utvm_deploy.kernels.native.scaling import Scaling

GROUP = 4
#: Windows whose taps are all written out: rows, columns.
UNROLLED = (3, 3)
PARAMETERS = (
    "const int8_t *rows",
    "const int32_t *table",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t row_pitch",
    "int32_t column_pitch",
    "int32_t step",
    "int32_t pixels",
    "int32_t channels",
    "int32_t kernel_rows",
    "int32_t kernel_columns",
)

_ACCUMULATORS = ("r4", "r5", "r6", "r7")
_SAVED_BYTES = 36
# Slots on the stack.
_OUTPUT = 0  # of the next pixel
_LEFT = 4  # pixels
_PITCH = 8  # of the output's pixels: all channels
_STEP = 12
_ROWS = 16  # the first pixel's group of channels
_SPECIAL = 20  # limits narrower than int8, or fewer than four channels
_ROW_PITCH = 24
_COLUMN = 28  # the output's first pixel
_PIXELS = 32
_CHANNELS_LEFT = 36
_LOW = 40
_HIGH = 44
_CLAMPS = 48
_GROUP_BYTES = 52
_TABLE = 56
_KERNEL_ROWS = 60
_KERNEL_COLUMNS = 64
_NEXT_ROW = 68  # from behind a row's last tap to the next row's first
_COLUMN_PITCH = 72
_FRAME_BYTES = 76


def pack_table(weights: Array, scaling: Scaling) -> Array:
    """[taps, channels] and the scales -> the layout above."""
    taps, channels = weights.shape
    groups = -(-channels // GROUP)
    filled = np.zeros((taps, groups * GROUP), dtype=np.int32)
    filled[:, :channels] = weights
    split = filled.reshape(taps, groups, 2, 2)  # tap, group, half, parity
    halves = split & 0xFFFF
    words = (halves[:, :, 0, :] | (halves[:, :, 1, :] << 16)).astype(np.uint32).view(np.int32)
    scales = np.zeros((len(scaling), groups * GROUP), dtype=np.int32)
    for index, row in enumerate(scaling):
        scales[index, :channels] = row
    return np.concatenate(
        [
            words.transpose(1, 0, 2).reshape(groups, 2 * taps),
            scales.reshape(-1, groups, GROUP).transpose(1, 0, 2).reshape(groups, -1),
        ],
        axis=1,
    ).reshape(-1)


def group_words(taps: int) -> int:
    """Words of the table for four channels."""
    return 2 * taps + 4 * GROUP


def name_of(window: tuple[int, int]) -> str:
    """The C function for a window."""
    return "utvm_depthwise_3x3" if window == UNROLLED else "utvm_depthwise"


@lru_cache(maxsize=8)
def depthwise_text(core: str, window: tuple[int, int]) -> str:
    """The C text of the function for a window, ordered for a core."""
    is_unrolled = window == UNROLLED
    routine = _routine(timing_of(core), is_unrolled)
    return c_text(name_of(window), PARAMETERS, routine, portable="utvm_depthwise")


def _routine(timing: Timing, is_unrolled: bool) -> Routine:
    r = Routine(timing)
    _enter(r)
    r.label("1")  # four more channels
    _begin_group(r, is_unrolled)
    r.label("2")  # another pixel
    if is_unrolled:
        scales = 8 * UNROLLED[0] * UNROLLED[1]
        r.straight([*_bias("r12", scales), *_taps(), *_finish("r12", scales, is_unrolled)])
    else:
        _loops(r)
    r.plain("bne 6f")
    r.straight(_store())
    r.plain("bne 2b")
    r.label("3")
    _next_group(r)
    r.label("6")
    _special(r)
    return r


def _enter(r: Routine) -> None:
    """The arguments into their slots, and what follows from them."""
    arguments = _FRAME_BYTES + _SAVED_BYTES
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"str r0, [sp, #{_ROWS}]",
        f"str r1, [sp, #{_TABLE}]",
        f"str r3, [sp, #{_COLUMN}]",
    )
    copied = (_ROW_PITCH, _COLUMN_PITCH, _STEP, _PIXELS, _PITCH, _KERNEL_ROWS, _KERNEL_COLUMNS)
    for number, slot in enumerate(copied):
        r.plain(f"ldr r4, [sp, #{arguments + 4 * number}]", f"str r4, [sp, #{slot}]")
    r.plain(
        f"ldr r4, [sp, #{_PITCH}]",
        f"str r4, [sp, #{_CHANNELS_LEFT}]",
        f"ldr r5, [sp, #{_KERNEL_ROWS}]",
        f"ldr r6, [sp, #{_KERNEL_COLUMNS}]",
        f"ldr r7, [sp, #{_COLUMN_PITCH}]",
        f"ldr r8, [sp, #{_ROW_PITCH}]",
        "mul r7, r7, r6",
        "sub r8, r8, r7",
        f"str r8, [sp, #{_NEXT_ROW}]",
        "mul r5, r5, r6",
        "lsl r5, r5, #3",
        "add r5, r5, #64",
        f"str r5, [sp, #{_GROUP_BYTES}]",
        *limits_prologue("r2", _LOW, _CLAMPS),
    )


def _begin_group(r: Routine, is_unrolled: bool) -> None:
    """Four channels at the first pixel: r0 its first tap, r3 the columns' pitch, r12 the table."""
    r.plain(
        f"ldr r4, [sp, #{_CLAMPS}]",
        f"ldr r5, [sp, #{_CHANNELS_LEFT}]",
        f"cmp r5, #{GROUP}",
        "it lt",
        "movlt r4, #1",
        f"str r4, [sp, #{_SPECIAL}]",
        f"ldr r4, [sp, #{_COLUMN}]",
        f"ldr r5, [sp, #{_PIXELS}]",
        f"strd r4, r5, [sp, #{_OUTPUT}]",
        f"ldr r12, [sp, #{_TABLE}]",
        f"ldr r3, [sp, #{_COLUMN_PITCH}]",
        f"ldr r0, [sp, #{_ROWS}]",
    )
    if is_unrolled:
        r.plain(f"ldr r4, [sp, #{_ROW_PITCH}]", "add r1, r0, r4", "add r2, r1, r4")


def _next_group(r: Routine) -> None:
    """On to the next four channels, or out."""
    r.plain(
        f"ldr r4, [sp, #{_TABLE}]",
        f"ldr r5, [sp, #{_GROUP_BYTES}]",
        f"ldr r6, [sp, #{_ROWS}]",
        f"ldr r7, [sp, #{_COLUMN}]",
        f"ldr r8, [sp, #{_CHANNELS_LEFT}]",
        "add r4, r4, r5",
        f"add r6, r6, #{GROUP}",
        f"add r7, r7, #{GROUP}",
        f"str r4, [sp, #{_TABLE}]",
        f"str r6, [sp, #{_ROWS}]",
        f"str r7, [sp, #{_COLUMN}]",
        f"subs r8, r8, #{GROUP}",
        f"str r8, [sp, #{_CHANNELS_LEFT}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "pop {r4-r11, pc}",
    )


def _special(r: Routine) -> None:
    """A pixel that is clamped, or of which fewer than four channels are stored, one by one."""
    bounds = [load("r8", "sp", _LOW), load("r9", "sp", _HIGH), load("r11", "sp", _CHANNELS_LEFT)]
    low = selected("r10", "r4", "r8", "r4", "r8")
    r.straight([*bounds, *low, *selected("r10", "r9", "r4", "r4", "r9")])
    r.plain("cmp r11, #4", "blt 7f")
    r.straight(_store())
    r.plain("bne 2b", "b 3b")
    r.label("7")
    r.plain(
        f"ldr r8, [sp, #{_OUTPUT}]",
        "mov r9, r8",
        "8:",
        "strb r4, [r9], #1",
        "lsr r4, r4, #8",
        "subs r11, #1",
        "bgt 8b",
        f"ldr r9, [sp, #{_PITCH}]",
        f"ldr r10, [sp, #{_LEFT}]",
        "add r8, r8, r9",
        f"str r8, [sp, #{_OUTPUT}]",
        "subs r10, #1",
        f"str r10, [sp, #{_LEFT}]",
        "bne 2b",
        "b 3b",
    )


def _bias(table: str, offset: int) -> list[Instruction]:
    return [load(register, table, offset + 4 * n) for n, register in enumerate(_ACCUMULATORS)]


def _products(first: str, second: str, even: str, odd: str) -> list[Instruction]:
    a, b, c, d = _ACCUMULATORS
    return [
        multiply_add("smlabb", a, first, even, a),
        multiply_add("smlatt", c, first, even, c),
        multiply_add("smlabb", b, second, odd, b),
        multiply_add("smlatt", d, second, odd, d),
    ]


def _taps() -> list[Instruction]:
    ring = ("r8", "r9", "r10", "r11", "lr")
    code: list[Instruction] = []
    values = 0

    def fresh() -> str:
        nonlocal values
        values += 1
        return ring[(values - 1) % len(ring)]

    rows, columns = UNROLLED
    for tap in range(rows * columns):
        row, column = divmod(tap, columns)
        place: int | str = (0, "r3", "r3, lsl #1")[column]
        word, even, first, odd = fresh(), fresh(), fresh(), fresh()
        products = _products(first, word, even, odd)
        code += [
            load(word, f"r{row}", place),
            load(even, "r12", 8 * tap),
            extend16(first, word),
            extend16(word, word, 8),
            *products[:2],
            load(odd, "r12", 8 * tap + 4),
            *products[2:],
        ]
    return code


def _finish(table: str, offset: int, is_unrolled: bool) -> list[Instruction]:
    """Requantized and packed in r4; the flags tell whether the pixel is special."""
    code: list[Instruction] = []
    sets = (("r8", "r9", "r10", "r11"), ("lr", "r9", "r10", "r8"))
    for channel, register in enumerate(_ACCUMULATORS):
        multiplier, shift, addend, temporary = sets[channel % 2]
        at = offset + 4 * channel
        code += [
            load(multiplier, table, at + 16),
            load(addend, table, at + 32),
            load(shift, table, at + 48),
            *scaled((register,), multiplier, addend, shift, temporary),
        ]
    code += [insert_byte("r4", other, n + 1) for n, other in enumerate(_ACCUMULATORS[1:])]
    code.append(load("r8", "sp", _STEP))
    code += [
        add(register, register, "r8") for register in ("r0", "r1", "r2")[: 3 if is_unrolled else 1]
    ]
    code += [load("r11", "sp", _SPECIAL), subtract_flags("r11", "r11", 0)]
    return code


def _loops(r: Routine) -> None:
    """Taps in loops: r0 the pixel's first tap, r1 the tap's, r2 rows left, r12 its weights."""
    r.plain(
        f"ldr r12, [sp, #{_TABLE}]",
        f"ldr r8, [sp, #{_GROUP_BYTES}]",
        "add r8, r8, r12",
        "sub r8, r8, #64",
    )
    r.straight([*_bias("r8", 0), load("r2", "sp", _KERNEL_ROWS), move("r1", "r0")])
    r.label("4")
    r.plain(f"ldr lr, [sp, #{_KERNEL_COLUMNS}]")
    r.label("5", is_loop=True)
    r.straight(
        [
            load("r8", "r1"),
            add("r1", "r1", "r3"),
            load("r10", "r12"),
            load("r11", "r12", 4),
            add("r12", "r12", 8),
            extend16("r9", "r8", 8),
            extend16("r8", "r8"),
            *_products("r8", "r9", "r10", "r11"),
            subtract_flags("lr", "lr", 1),
        ],
        is_loop=True,
    )
    r.plain("bne 5b", f"ldr r8, [sp, #{_NEXT_ROW}]", "subs r2, #1", "add r1, r1, r8", "bne 4b")
    r.straight(_finish("r12", 0, False))


def _store() -> list[Instruction]:
    return [
        load("r8", "sp", _OUTPUT),
        load("r9", "sp", _PITCH),
        load("r10", "sp", _LEFT),
        store("r4", "r8"),
        add("r8", "r8", "r9"),
        subtract_flags("r10", "r10", 1),
        store("r8", "sp", _OUTPUT),
        store("r10", "sp", _LEFT),
    ]
