"""The inner block of depthwise convolutions: two pixels of eight channels, any window.

Eight products fit eight lanes of 16 bits, and so does the sum of two, as long as two weights of a
channel come to 255 at most. Pairs of taps are summed up so, then widened to four vectors of 32
bits: the even and the odd lanes of both pixels. The tap that is left, or all where weights come to
more, are widened one by one. Groups of channels are outermost, so that one table serves a row of
pixels.

Layouts, for channel c = 8 group + lane and tap t = column + kernel columns * row:
    rows     int8  [row][column][channels, filled up to eights]
    weights  int8  [group][tap][lane]
    offsets  int32 [tap]: bytes from the window's first pixel
    scaling  int32 [group][bias, multiplier, right shift (, left shift)][even lanes, odd lanes]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.mve.code import CONDITION

GROUP = 8
#: What two weights of a channel may come to: 255 * 128 is less than 2**15.
_PAIR_LIMIT = 255

PARAMETERS = (
    "const int8_t *rows",
    "const int8_t *weights",
    "const int32_t *scaling",
    "const int32_t *offsets",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t step",
    "int32_t count",
    "int32_t channels",
    "int32_t taps",
    "int32_t pairs",
)

# Slots on the stack.
_OFFSETS = 0
_OUTPUT = 4  # where the next pixel goes
_STEP = 8  # to the second pixel; 0 if there is none
_FIRST = 12  # the first pixel's group of channels
_COLUMN = 16  # where it goes
_ZERO_POINT = 20
_LOW = 24
_HIGH = 28
_CHANNELS_LEFT = 32
_CHANNELS = 36
_COUNT = 40
_PAIRS = 44
_OUTPUT_STEP = 48
_GIVEN_STEP = 52
_SINGLES = 56
_FRAME_BYTES = 64
_SAVED_BYTES = 36 + 64


def fits_pairs(weights: Array) -> bool:
    """Whether two weights may share 16 bits; ``weights`` are [taps, channels]."""
    pairs = np.abs(weights[: weights.shape[0] // 2 * 2].astype(np.int64))
    return bool((pairs[0::2] + pairs[1::2] <= _PAIR_LIMIT).all())


def scaling_words(has_left: bool) -> int:
    """Of a group's entry in the scaling table."""
    return GROUP * (4 if has_left else 3)


def pack_weights(weights: Array) -> Array:
    """[taps, channels] -> the layout above."""
    taps, channels = weights.shape
    groups = -(-channels // GROUP)
    filled = np.zeros((taps, groups * GROUP), dtype=np.int8)
    filled[:, :channels] = weights
    split = filled.reshape(-1, groups, GROUP).transpose(1, 0, 2)
    return np.ascontiguousarray(split).reshape(-1)


def pack_offsets(window: tuple[int, int], row_pitch: int, column_pitch: int) -> Array:
    """The table of offsets."""
    rows, columns = window
    taps = [r * row_pitch + c * column_pitch for r in range(rows) for c in range(columns)]
    return np.array(taps, dtype=np.int32)


def pack_scaling(bias: Array, multiplier: Array, shift: Array, has_left: bool) -> Array:
    """The reference's numbers of each channel -> the layout above."""
    rows = [bias, multiplier, np.minimum(shift, 0), np.maximum(shift, 0)][: 4 if has_left else 3]
    groups = -(-bias.size // GROUP)
    filled = np.zeros((len(rows), groups * GROUP), dtype=np.int32)
    for index, row in enumerate(rows):
        filled[index, : bias.size] = row
    # row, group, pair, parity -> group, row, parity, pair
    split = filled.reshape(len(rows), groups, GROUP // 2, 2).transpose(1, 0, 3, 2)
    return np.ascontiguousarray(split).reshape(-1)


def name_of(has_left: bool) -> str:
    """The C function."""
    return "utvm_mve_depthwise_left" if has_left else "utvm_mve_depthwise"


@lru_cache(maxsize=2)
def depthwise_text(has_left: bool) -> str:
    """The C text of the function."""
    body = replaced(
        family_text("mve", "utvm_mve_depthwise"),
        ("GROUP_WORDS", str(scaling_words(has_left)), 1),
        ("LEFT_SHIFT", "s[24]" if has_left else "0", 1),
    )
    return naked_function(name_of(has_left), PARAMETERS, _lines(has_left), body, CONDITION)


#: Adds the products of both pixels in q1 and q2 to their sums.
_WIDENED = (
    "vmovlb.s16 q0, q1",
    "vmovlt.s16 q1, q1",
    "vadd.i32 q4, q4, q0",
    "vmovlb.s16 q0, q2",
    "vadd.i32 q5, q5, q1",
    "vmovlt.s16 q2, q2",
    "vadd.i32 q6, q6, q0",
    "vadd.i32 q7, q7, q2",
)


def _lines(has_left: bool) -> list[str]:
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d15}",
        f"sub sp, #{_FRAME_BYTES}",
        *_arguments(),
        "1:",  # eight more channels
        f"ldrd r0, r7, [sp, #{_FIRST}]",
        f"ldr r8, [sp, #{_COUNT}]",
        f"ldrd r10, r5, [sp, #{_OUTPUT_STEP}]",
        "2:",  # two more pixels
        "cmp r8, #1",
        "itt eq",
        "moveq r5, #0",  # the last one twice
        "moveq r10, #0",
        *_products(),
        *_outputs(has_left),
        "add r7, r3, r10",
        "add r0, r0, r5, lsl #1",
        "subs r8, #2",
        "bgt 2b",
        f"ldrd r0, r7, [sp, #{_FIRST}]",
        f"add r12, #{4 * scaling_words(has_left)}",
        "mov r6, r1",
        f"subs r9, #{GROUP}",
        f"add r0, #{GROUP}",
        f"add r7, #{GROUP}",
        f"strd r0, r7, [sp, #{_FIRST}]",
        f"str r9, [sp, #{_CHANNELS_LEFT}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "vpop {d8-d15}",
        "pop {r4-r11, pc}",
    ]


def _arguments() -> list[str]:
    """To their slots; the scaling of a group is at r12 then, its weights are at r6."""
    return [
        "mov r12, r2",
        f"str r3, [sp, #{_OFFSETS}]",
        f"add r4, sp, #{_FRAME_BYTES + _SAVED_BYTES}",
        # Limits, output, step, count, channels, taps, pairs.
        "ldm r4, {r2, r3, r5, r6, r7, r8, r9}",
        f"strd r0, r3, [sp, #{_FIRST}]",
        "ldm r2, {r2, r3, r4}",
        f"strd r2, r3, [sp, #{_ZERO_POINT}]",
        f"strd r4, r7, [sp, #{_HIGH}]",
        f"strd r7, r6, [sp, #{_CHANNELS}]",
        "sub r8, r8, r9, lsl #1",
        f"str r9, [sp, #{_PAIRS}]",
        f"str r8, [sp, #{_SINGLES}]",
        f"strd r7, r5, [sp, #{_OUTPUT_STEP}]",
        "mov r6, r1",  # weights of this group
    ]


def _products() -> list[str]:
    """The sums of both pixels, at r0 and r5 bytes behind it; r1 ends behind the group's weights."""
    return [
        f"ldr r2, [sp, #{_OFFSETS}]",
        "mov r1, r6",
        "vldrw.32 q4, [r12]",
        "vldrw.32 q5, [r12, #16]",
        f"ldr r3, [sp, #{_PAIRS}]",
        "vmov q6, q4",
        "vmov q7, q5",
        "wls lr, r3, 4f",
        "3:",  # two more taps
        "ldrd r3, r4, [r2], #8",
        "vldrb.s16 q0, [r1], #8",
        "add r3, r0",
        "add r4, r0",
        "vldrb.s16 q1, [r3]",
        "add r3, r5",
        "vmul.i16 q1, q1, q0",
        "vldrb.s16 q2, [r3]",
        "vmul.i16 q2, q2, q0",
        "vldrb.s16 q0, [r1], #8",
        "vldrb.s16 q3, [r4]",
        "add r4, r5",
        "vmul.i16 q3, q3, q0",
        "vadd.i16 q1, q1, q3",
        "vldrb.s16 q3, [r4]",
        "vmul.i16 q3, q3, q0",
        "vadd.i16 q2, q2, q3",
        *_WIDENED,
        "le lr, 3b",
        "4:",
        f"ldr r3, [sp, #{_SINGLES}]",
        "wls lr, r3, 6f",
        "5:",  # another tap
        "ldr r3, [r2], #4",
        "vldrb.s16 q0, [r1], #8",
        "add r3, r0",
        "vldrb.s16 q1, [r3]",
        "add r3, r5",
        "vmul.i16 q1, q1, q0",
        "vldrb.s16 q2, [r3]",
        "vmul.i16 q2, q2, q0",
        *_WIDENED,
        "le lr, 5b",
        "6:",
    ]


def _outputs(has_left: bool) -> list[str]:
    """Of both pixels, to r7 and r10 bytes behind it; leaves in r9 how many channels are left."""
    return [
        *_requantized(("q4", "q6"), 0, has_left),
        *_requantized(("q5", "q7"), 1, has_left),
        f"ldrd r2, r3, [sp, #{_ZERO_POINT}]",
        f"ldrd r4, r9, [sp, #{_HIGH}]",
        *(f"vadd.i32 q{n}, q{n}, r2" for n in range(4, 8)),
        "vdup.16 q0, r3",
        "vqmovnb.s32 q4, q4",
        "vqmovnb.s32 q6, q6",
        "vqmovnt.s32 q4, q5",
        "vqmovnt.s32 q6, q7",
        "vdup.16 q1, r4",
        "vctp.16 r9",
        "vmax.s16 q4, q4, q0",
        "vmax.s16 q6, q6, q0",
        "add r3, r7, r10",
        "vmin.s16 q4, q4, q1",
        "vmin.s16 q6, q6, q1",
        "vpstt",
        "vstrbt.16 q4, [r7]",
        "vstrbt.16 q6, [r3]",
    ]


def _requantized(vectors: tuple[str, str], parity: int, has_left: bool) -> list[str]:
    """As ``code.requantized``, of the same channels of both pixels."""
    rows = [f"[r12, #{32 * row + 16 * parity}]" for row in range(4)]
    code = []
    if has_left:
        code += [f"vldrw.32 q0, {rows[3]}", *(f"vshl.s32 {v}, {v}, q0" for v in vectors)]
    return [
        *code,
        f"vldrw.32 q0, {rows[1]}",
        f"vldrw.32 q1, {rows[2]}",
        *(f"vqrdmulh.s32 {v}, {v}, q0" for v in vectors),
        f"vand q2, {vectors[0]}, q1",
        f"vand q3, {vectors[1]}, q1",
        "vshr.s32 q2, q2, #31",
        "vshr.s32 q3, q3, #31",
        f"vadd.i32 {vectors[0]}, {vectors[0]}, q2",
        f"vadd.i32 {vectors[1]}, {vectors[1]}, q3",
        *(f"vrshl.s32 {v}, {v}, q1" for v in vectors),
    ]
