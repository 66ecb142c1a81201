"""The matrix product of convolutions: tiles of 3 pixels by 2 channels in six accumulators.

Six products and what feeds them (three words of pixels, a word of weights, two SXTB16) are twelve
instructions, which a core that issues two at a time does in six cycles. A tile of 4 x 2 needs one
register more than there is. Loads run ahead by one word of weights and two of pixels, so both
tables have ``SLACK_BYTES`` behind them, which are read and never used.

Layouts, for depth k = 4 q + 2 l + f (quad, lane, phase):
    patches  int16 [group of 3 pixels][quad][phase][pixel][lane]
    weights  int8  [pair of channels][quad][phase][lane][channel]
    scaling  int32 [pair of channels][bias, multiplier, offset, shift][channel]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    add_shifted,
    compare,
    load,
    store,
    subtract,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp import tile
from utvm_deploy.kernels.native.dsp.code import c_text

PIXELS = 3
CHANNELS = tile.CHANNELS
#: Depths are padded to multiples of this with weights of zero. The inner loop's step is the longer
#: one where that costs no padding; small depths are written out whole, without a loop.
DEPTH_STEP = 8
LONG_STEP = 16
WHOLE_DEPTH = 64
SLACK_BYTES = 16
SCALING_ROWS = 4

PARAMETERS = (
    "const int16_t *patches",
    "const int8_t *weights",
    "const int32_t *scaling",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t pixels",
    "int32_t channels",
    "int32_t depth",
)

SCALING_BYTES = 4 * SCALING_ROWS * CHANNELS

# Slots on the stack, behind the tile's.
_PATCHES = tile.OTHER_SLOTS
_PIXELS_SLOT = _PATCHES + 4
_FRAME_BYTES = _PIXELS_SLOT + 4
_SAVED_BYTES = 36


def pack_weights(weights: Array, padded: int) -> Array:
    """[channels, depth] -> the layout above, the depth padded, with slack."""
    channels, depth = weights.shape
    pairs = -(-channels // CHANNELS)
    filled = np.zeros((pairs * CHANNELS, padded), dtype=np.int8)
    filled[:channels, :depth] = weights
    # pair, channel, quad, lane, phase -> pair, quad, phase, lane, channel
    split = filled.reshape(pairs, CHANNELS, padded // 4, 2, 2).transpose(0, 2, 4, 3, 1)
    return np.concatenate([split.reshape(-1), np.zeros(SLACK_BYTES, dtype=np.int8)])


def padded_depth(depth: int) -> int:
    """The depth that the inner loop does."""
    return -(-depth // DEPTH_STEP) * DEPTH_STEP


def pack_scaling(rows: tuple[Array, Array, Array, Array]) -> Array:
    """Bias, multiplier, offset, shift of each channel -> the layout above."""
    channels = rows[0].size
    pairs = -(-channels // CHANNELS)
    filled = np.zeros((SCALING_ROWS, pairs * CHANNELS), dtype=np.int32)
    for index, row in enumerate(rows):
        filled[index, :channels] = row
    return np.ascontiguousarray(
        filled.reshape(SCALING_ROWS, pairs, CHANNELS).transpose(1, 0, 2)
    ).reshape(-1)


def steps_for(depth: int) -> tuple[int, ...]:
    """Steps that the inner loop can have for a padded depth, the best by default first."""
    steps = [DEPTH_STEP] if depth % LONG_STEP else [LONG_STEP, DEPTH_STEP]
    return tuple(dict.fromkeys([depth, *steps] if depth <= WHOLE_DEPTH else steps))


def name_of(step: int, depth: int) -> str:
    """The C function for a padded depth."""
    return f"utvm_gemm_{'whole_' if step == depth else ''}{step}"


@lru_cache(maxsize=16)
def gemm_text(core: str, step: int, depth: int) -> str:
    """The C text of the function with this step, ordered for a core."""
    routine = _routine(timing_of(core), step, is_whole=step == depth)
    return c_text(name_of(step, depth), PARAMETERS, routine, portable="utvm_gemm")


def _routine(timing: Timing, step: int, *, is_whole: bool) -> Routine:
    r = Routine(timing)
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        *(f"ldr {t}, [sp, #{_FRAME_BYTES + _SAVED_BYTES + 4 * n}]" for n, t in enumerate(
            ("r4", "r5", "r6", "r7"))),
        # What two channels of this depth take.
        "lsl r7, r7, #1",
        *tile.limits_prologue("r3"),
        f"str r7, [sp, #{tile.PANEL_BYTES}]",
        f"str r2, [sp, #{tile.SCALING}]",
        f"str r0, [sp, #{_PATCHES}]",
        f"str r4, [sp, #{tile.COLUMN}]",
        f"str r5, [sp, #{_PIXELS_SLOT}]",
        f"strd r6, r6, [sp, #{tile.CHANNELS_LEFT}]",
    )  # fmt: skip
    r.label("1")  # two more channels
    _begin_channels(r, step)
    _tiles(r, step, is_whole=is_whole)
    r.label("5")
    r.plain(*tile.next_channels(SCALING_BYTES, _FRAME_BYTES))
    r.label("8")
    _special(r)
    return r


def _begin_channels(r: Routine, step: int) -> None:
    """What the first tile of a pair of channels finds in the slots."""
    r.plain(
        f"ldr r0, [sp, #{_PATCHES}]",
        f"ldr r2, [sp, #{tile.PANEL_BYTES}]",
        f"ldr r3, [sp, #{tile.COLUMN}]",
        f"ldr r4, [sp, #{_PIXELS_SLOT}]",
        f"ldr r5, [sp, #{tile.CHANNELS_LEFT}]",
        f"ldr r6, [sp, #{tile.CLAMPS}]",
        "add r2, r1, r2",
        f"sub r2, r2, #{2 * step}",
        f"cmp r4, #{PIXELS}",
        "it ge",
        f"cmpge r5, #{CHANNELS}",
        "it lt",
        "movlt r6, #1",
        f"str r1, [sp, #{tile.WEIGHTS}]",
        f"str r2, [sp, #{tile.LAST}]",
        f"strd r3, r4, [sp, #{tile.OUTPUT}]",
        f"str r6, [sp, #{tile.SPECIAL}]",
    )


def _tiles(r: Routine, step: int, *, is_whole: bool) -> None:
    """Tile after tile, from label 2; to 8 for what is special, to 5 behind the last."""
    r.label("2")
    start = [*tile.start(PIXELS), *tile.first_pixels(PIXELS, _place)]
    r.straight(start)
    r.label("3", is_loop=True)  # another step of the depth
    if is_whole:
        code = tile.loop(PIXELS, step, _place, 0, is_whole=True)
        r.straight([*code, add("r0", "r0", step * PIXELS * 2), *tile.finish(PIXELS)])
    else:
        code = tile.loop(PIXELS, step, _place, step * PIXELS * 2, is_whole=False)
        r.straight(code, is_loop=True)
        r.plain("bne 3b")
        r.straight(tile.finish(PIXELS))
    r.plain("bne 8f")
    r.straight([*_store("lr"), compare("lr", PIXELS), *start])
    r.plain(
        "bge 3b", "cmp lr, #0", "ble 5f", "mov lr, #1", f"str lr, [sp, #{tile.SPECIAL}]", "b 3b"
    )


def _special(r: Routine) -> None:
    """A tile that is clamped, or has fewer than three pixels, or one channel."""
    r.plain(f"ldr r2, [sp, #{tile.CLAMPS}]", "cmp r2, #0", "beq 4f")
    r.straight(tile.clamp(PIXELS))
    r.label("4")
    r.straight(
        [
            load("r10", "sp", tile.OUTPUT),
            load("r11", "sp", tile.CHANNELS_SLOT),
            load("r3", "sp", tile.LEFT),
            load("r2", "sp", tile.CHANNELS_LEFT),
            compare("r3", PIXELS),
        ]
    )
    r.plain("blt 6f", f"cmp r2, #{CHANNELS}", "blt 6f")
    r.straight([*_store("r3"), compare("r3", 0)])
    r.plain("bgt 2b", "b 5b")
    r.label("6")  # byte by byte
    for pixel, (register, _) in enumerate(tile.ACCUMULATORS):
        if pixel:
            r.plain(f"cmp r3, #{pixel + 1}", "blt 7f")
        r.plain(
            f"strb {register}, [r10]",
            "cmp r2, #2",
            "itt ge",
            f"lsrge {register}, {register}, #8",
            f"strbge {register}, [r10, #1]",
            "add r10, r10, r11",
        )
    r.label("7")
    r.plain(
        f"subs r3, #{PIXELS}",
        f"str r10, [sp, #{tile.OUTPUT}]",
        f"str r3, [sp, #{tile.LEFT}]",
        "bgt 2b",
        "b 5b",
    )


def _place(phase: int, pixel: int) -> int:
    """r0 goes on from tile to tile."""
    return 4 * (PIXELS * phase + pixel)


def _store(left: str) -> list[Instruction]:
    """Three pixels of two channels; ``left`` becomes the pixels that are left."""
    low = [pair[0] for pair in tile.ACCUMULATORS]
    return [
        add_shifted("r12", "r10", "r11", "lsl #1"),
        store(low[0], "r10", size="h"),
        store(low[1], "r10", "r11", size="h"),
        store(low[2], "r12", size="h"),
        add("r12", "r12", "r11"),
        load(left, "sp", tile.LEFT),
        subtract(left, left, PIXELS),
        store("r12", "sp", tile.OUTPUT),
        store(left, "sp", tile.LEFT),
    ]
