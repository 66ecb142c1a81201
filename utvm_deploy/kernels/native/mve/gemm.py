"""The matrix product of convolutions: tiles of 3 pixels by 2 channels, two of them for a vector.

A step of the inner loop multiplies 16 bytes of three pixels with 16 bytes of two channels: five
loads, six VMLADAVA, and LETP, which also masks what lies beyond the depth. The sums of two tiles
are the lanes of a vector of four channels; three such vectors are requantized together. One or two
pixels that are left are done as one pixel by four channels. Of pixels of int16 a step multiplies
eight of each, sums fit 32 bits, and are scaled once.

Layouts, for channel o = 4 quad + 2 slot + pair and depth k = 16 block + byte:
    pixels   int8  [pixel][depth], ``pitch`` bytes from pixel to pixel
    weights  int8  [quad][pair][block][slot][byte], zeros beyond the depth and the channels;
                   blocks of eight for pixels of int16
    scaling  int32 [quad][bias by pair and slot | multiplier | right shift (| left shift)]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.mve.code import (
    BYTES,
    CONDITION,
    HALVES,
    Lanes,
    quad_products,
    requantized,
    requantized_once,
)

#: Channels that are requantized together.
CHANNELS = 4
#: Pixels of a tile.
PIXELS = 3
#: The C function for pixels of int16; its pitch counts elements.
WIDE_NAME = "utvm_mve_wide_gemm"


# Slots on the stack: where the next tile begins and goes, and how many pixels are left; this quad's
# weights; the first pixel, and where this quad's first output goes; what was given.
(_PIXELS, _OUTPUT, _LEFT, _PANEL, _FIRST_PIXEL, _COLUMN, _COUNT, _CHANNELS_LEFT, _CHANNELS, _PITCH,
 _ZERO_POINT, _LOW, _HIGH) = range(0, 52, 4)  # fmt: skip
_FRAME_BYTES = 56
_SAVED_BYTES = 36 + 64
_STORES = {BYTES: "vstrbt.32", HALVES: "vstrht.32"}


def padded_depth(depth: int, by: Lanes = BYTES) -> int:
    """What a channel's weights take."""
    return -(-depth // by.lanes) * by.lanes


def scaling_words(has_left: bool) -> int:
    """Of a quad's entry in the scaling table."""
    return CHANNELS * (4 if has_left else 3)


def pack_weights(weights: Array, by: Lanes = BYTES) -> Array:
    """[channels, depth] -> the layout above."""
    channels, depth = weights.shape
    quads, padded = -(-channels // CHANNELS), padded_depth(depth, by)
    filled = np.zeros((quads * CHANNELS, padded), dtype=np.int8)
    filled[:channels, :depth] = weights
    # quad, slot, pair, block, byte -> quad, pair, block, slot, byte
    split = filled.reshape(quads, 2, 2, padded // by.lanes, by.lanes)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4)).reshape(-1)


def pack_scaling(
    bias: Array, multiplier: Array, shift: Array, *, has_left: bool | None = None
) -> Array:
    """The reference's numbers of each channel -> the layout above.

    ``has_left``: whether there are left shifts; None: as the channels need them.
    """
    rows = [bias, multiplier, np.minimum(shift, 0)]
    if has_left_shift(shift) if has_left is None else has_left:
        rows.append(np.maximum(shift, 0))
    quads = -(-bias.size // CHANNELS)
    filled = np.zeros((len(rows), quads * CHANNELS), dtype=np.int32)
    for index, row in enumerate(rows):
        filled[index, : bias.size] = row
    split = filled.reshape(len(rows), quads, CHANNELS).transpose(1, 0, 2).copy()
    split[:, 0] = split[:, 0, [0, 2, 1, 3]]
    return np.ascontiguousarray(split).reshape(-1)


def has_left_shift(shift: Array) -> bool:
    """Whether any channel's scale is one or more."""
    return int(shift.max()) > 0


def name_of(has_left: bool) -> str:
    """The C function."""
    return "utvm_mve_gemm_left" if has_left else "utvm_mve_gemm"


@lru_cache(maxsize=2)
def gemm_text(has_left: bool) -> str:
    """The C text of the function."""
    body = replaced(
        family_text("mve", "utvm_mve_gemm"),
        ("QUAD_WORDS", str(scaling_words(has_left)), 2),
        ("LEFT_SHIFT", "s[12]" if has_left else "0", 1),
    )
    return naked_function(name_of(has_left), PRODUCT_PARAMETERS, _lines(has_left), body, CONDITION)


@lru_cache(maxsize=1)
def wide_gemm_text() -> str:
    """The same of int16 by int8."""
    halves = [
        replaced(one, ("int8_t", "int16_t", 1)) if one.endswith(("*pixels", "*output")) else one
        for one in PRODUCT_PARAMETERS
    ]
    body = family_text("mve", WIDE_NAME)
    return naked_function(WIDE_NAME, halves, _lines(has_left=False, by=HALVES), body, CONDITION)


def _lines(has_left: bool, by: Lanes = BYTES) -> list[str]:
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d15}",
        f"sub sp, #{_FRAME_BYTES}",
        *_arguments(by),
        "1:",  # four more channels
        f"ldrd r1, r0, [sp, #{_FIRST_PIXEL}]",
        f"ldr r2, [sp, #{_COUNT}]",
        f"strd r1, r0, [sp, #{_PIXELS}]",
        f"strd r2, r7, [sp, #{_LEFT}]",
        f"subs r2, #{PIXELS}",
        "blt 4f",
        "2:",
        *_three_pixels(has_left, by),
        f"ldrd r2, r7, [sp, #{_LEFT}]",
        f"subs r2, #{PIXELS}",
        "bge 2b",
        "4:",
        f"adds r2, #{PIXELS}",
        "beq 6f",
        "5:",
        *_one_pixel(has_left, by),
        f"ldrd r2, r7, [sp, #{_LEFT}]",
        "subs r2, #1",
        "bgt 5b",
        "6:",
        f"ldr r0, [sp, #{_COLUMN}]",
        f"ldr r1, [sp, #{_CHANNELS_LEFT}]",
        f"adds r0, #{CHANNELS * by.pixel_bytes}",
        f"add r12, r12, #{4 * scaling_words(has_left)}",
        "add r7, r7, r9, lsl #2",
        f"str r0, [sp, #{_COLUMN}]",
        f"subs r1, #{CHANNELS}",
        f"str r1, [sp, #{_CHANNELS_LEFT}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "vpop {d8-d15}",
        "pop {r4-r11, pc}",
    ]


def _arguments(by: Lanes) -> list[str]:
    """To their slots; weights are in r7 then, scaling in r12, the depth in r11, padded in r9."""
    arguments = _FRAME_BYTES + _SAVED_BYTES
    return [
        "mov r7, r1",
        "mov r12, r2",
        f"str r0, [sp, #{_FIRST_PIXEL}]",
        "ldm r3, {r0, r1, r2}",
        f"strd r0, r1, [sp, #{_ZERO_POINT}]",
        f"str r2, [sp, #{_HIGH}]",
        f"add r0, sp, #{arguments}",
        "ldm r0, {r0, r1, r2, r11}",
        f"ldr r3, [sp, #{arguments + 16}]",
        *(["lsl r3, #1"] if by is HALVES else []),
        f"strd r0, r1, [sp, #{_COLUMN}]",
        f"strd r2, r2, [sp, #{_CHANNELS_LEFT}]",
        f"str r3, [sp, #{_PITCH}]",
        *(["lsl r2, #1", f"str r2, [sp, #{_CHANNELS}]"] if by is HALVES else []),
        f"add r9, r11, #{by.lanes - 1}",
        f"bic r9, r9, #{by.lanes - 1}",
    ]


def _three_pixels(has_left: bool, by: Lanes) -> list[str]:
    """By the four channels; r1 is the first, r2 how many there are beyond the three."""
    vectors = ("q4", "q5", "q6")
    back = "sub {}, r9" if by is BYTES else "sub {0}, {0}, r9, lsl #1"
    return [
        f"ldr r3, [sp, #{_PITCH}]",
        f"str r2, [sp, #{_LEFT}]",
        "add r5, r1, r3, lsl #1",
        "add r3, r1",
        *_tile_of_six(0, 3, by),
        *(back.format(pointer) for pointer in ("r1", "r3", "r5")),
        *_tile_of_six(1, 6, by),
        f"ldrd r1, r0, [sp, #{_PIXELS}]",
        f"ldr r3, [sp, #{_PITCH}]",
        f"ldr r4, [sp, #{_CHANNELS}]",
        "add r3, r3, r3, lsl #1",
        "add r1, r3",
        "add r5, r0, r4",
        "add r6, r5, r4",
        "add r4, r6",
        f"strd r1, r4, [sp, #{_PIXELS}]",
        *_scaled(vectors, ("q2", "q3", "q7"), has_left, by),
        *_clamped(vectors, by),
        "vpsttt",
        *(f"{_STORES[by]} {v}, [{to}]" for v, to in zip(vectors, ("r0", "r5", "r6"), strict=True)),
    ]


def _one_pixel(has_left: bool, by: Lanes) -> list[str]:
    """At r1, by the four channels; r2 says how many are left."""
    return [
        f"str r2, [sp, #{_LEFT}]",
        "ldm r12, {r0, r2, r4, r6}",
        "add r3, r7, r9, lsl #1",
        *quad_products("7", ("r0", "r2", "r4", "r6"), by),
        "vmov q4[2], q4[0], r0, r2",
        "vmov q4[3], q4[1], r4, r6",
        f"ldrd r1, r0, [sp, #{_PIXELS}]",
        f"ldr r3, [sp, #{_PITCH}]",
        f"ldr r4, [sp, #{_CHANNELS}]",
        "add r1, r3",
        "add r4, r0",
        f"strd r1, r4, [sp, #{_PIXELS}]",
        *_scaled(("q4",), ("q2",), has_left, by),
        *_clamped(("q4",), by),
        "vpst",
        f"{_STORES[by]} q4, [r0]",
    ]


def _scaled(
    vectors: tuple[str, ...], temporaries: tuple[str, ...], has_left: bool, by: Lanes
) -> list[str]:
    if by is HALVES:
        return requantized_once(vectors, 16)
    return requantized(vectors, temporaries, 16, has_left)


def _tile_of_six(pair: int, label: int, by: Lanes) -> list[str]:
    """Three pixels by the two channels of a pair, into the pair's lanes of q4, q5 and q6."""
    sums = ("r0", "r2"), ("r4", "r6"), ("r8", "r10")
    label += 5  # 8 and 11: numbers that nothing else has
    return [
        f"ldrd r0, r2, [r12, #{8 * pair}]",
        *(f"mov {other}, {one}" for pair_ in sums[1:] for other, one in zip(pair_, sums[0],
                                                                            strict=True)),
        f"{by.start} lr, r11",
        f"{label}:",
        by.load_weights.format("q0", "r7"),
        by.load_pixels.format("q1", "r1"),
        f"{by.multiply} r0, q0, q1",
        by.load_pixels.format("q2", "r3"),
        f"{by.multiply} r4, q0, q2",
        by.load_pixels.format("q3", "r5"),
        f"{by.multiply} r8, q0, q3",
        by.load_weights.format("q0", "r7"),
        f"{by.multiply} r2, q0, q1",
        f"{by.multiply} r6, q0, q2",
        f"{by.multiply} r10, q0, q3",
        f"letp lr, {label}b",
        *(
            f"vmov q{4 + n}[{2 + pair}], q{4 + n}[{pair}], {first}, {second}"
            for n, (first, second) in enumerate(sums)
        ),
    ]  # fmt: skip


def _clamped(vectors: tuple[str, ...], by: Lanes) -> list[str]:
    """Zero point and limits; the predicate says which channels there are."""
    return [
        f"ldrd r2, r3, [sp, #{_ZERO_POINT}]",
        f"ldr r4, [sp, #{_HIGH}]",
        f"ldr r8, [sp, #{_CHANNELS_LEFT}]",
        *(f"vadd.i32 {v}, {v}, r2" for v in vectors if by is BYTES),
        "vdup.32 q0, r3",
        "vdup.32 q1, r4",
        "vctp.32 r8",
        *(f"vmax.s32 {v}, {v}, q0" for v in vectors),
        *(f"vmin.s32 {v}, {v}, q1" for v in vectors),
    ]
