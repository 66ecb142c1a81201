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
from utvm_deploy.kernels.dsp.code import c_text
from utvm_deploy.kernels.micro.assembly import (
    Instruction,
    add,
    add_shifted,
    compare,
    extend16,
    insert_byte,
    load,
    load_pair,
    move,
    multiply_add,
    saturate,
    shift_right,
    simd,
    store,
    subtract,
)
from utvm_deploy.kernels.micro.order import timing_of
from utvm_deploy.kernels.micro.routine import Routine

PIXELS = 3
CHANNELS = 2
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

_SCALING_BYTES = 4 * SCALING_ROWS * CHANNELS

# r0 patches, r1 weights.
_ACCUMULATORS = (("r4", "r5"), ("r6", "r7"), ("r8", "r9"))
_PIXEL = ("r10", "r11")
_WEIGHT = (("r2", "r3"), ("r12", "lr"))

# Slots on the stack.
_LAST = 0  # the weights of this pair of channels when their last step begins
_SCALING = 4
_OUTPUT = 8  # where the next tile goes
_LEFT = 12  # pixels
_PATCHES = 16
_COLUMN = 20  # where the first tile of this pair of channels went
_PIXELS_SLOT = 24
_CHANNELS_LEFT = 28
_CHANNELS_SLOT = 32
_LOW = 36
_HIGH = 40
_CLAMPS = 44
_PANEL_BYTES = 48
_WEIGHTS = 52  # of this pair of channels
_SPECIAL = 56  # a tile that is clamped, or is not stored whole
_FRAME_BYTES = 60
_SAVED_BYTES = 36
# The longest step that a load can write back.
_WRITE_BACK_BYTES = 255


def pack_weights(weights: Array) -> Array:
    """[channels, depth] -> the layout above, with slack."""
    channels, depth = weights.shape
    pairs, padded = -(-channels // CHANNELS), padded_depth(depth)
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


def scaled(
    accumulators: tuple[str, ...],
    multiplier: str,
    offset: str,
    shift: str,
    temporary: str,
    *,
    into: str | None = None,
) -> list[Instruction]:
    """Requantization to int8, in place or ``into``: what ``utvm_scale`` computes."""
    code: list[Instruction] = []
    for register in accumulators:
        code += [
            add_shifted(temporary, offset, register, "asr #31"),
            add(register, register, register),
            multiply_add("smmlar", register, register, multiplier, temporary),
            shift_right(register, register, shift),
            saturate(into or register, register, 8),
        ]
    return code


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
        "ldrsb r8, [r3]",
        "ldrsb r9, [r3, #4]",
        "mov r10, #0x01010101",
        "cmp r8, #-128",
        "it eq",
        "cmpeq r9, #127",
        "ite eq",
        "moveq r12, #0",
        "movne r12, #1",
        "uxtb r8, r8",
        "uxtb r9, r9",
        "mul r8, r8, r10",
        "mul r9, r9, r10",
        f"strd r8, r9, [sp, #{_LOW}]",
        f"str r12, [sp, #{_CLAMPS}]",
        f"str r7, [sp, #{_PANEL_BYTES}]",
        f"str r2, [sp, #{_SCALING}]",
        f"str r0, [sp, #{_PATCHES}]",
        f"str r4, [sp, #{_COLUMN}]",
        f"str r5, [sp, #{_PIXELS_SLOT}]",
        f"strd r6, r6, [sp, #{_CHANNELS_LEFT}]",
    )  # fmt: skip
    r.label("1")  # two more channels
    r.plain(
        f"ldr r0, [sp, #{_PATCHES}]",
        f"ldr r2, [sp, #{_PANEL_BYTES}]",
        f"ldr r3, [sp, #{_COLUMN}]",
        f"ldr r4, [sp, #{_PIXELS_SLOT}]",
        f"ldr r5, [sp, #{_CHANNELS_LEFT}]",
        f"ldr r6, [sp, #{_CLAMPS}]",
        "add r2, r1, r2",
        f"sub r2, r2, #{2 * step}",
        f"cmp r4, #{PIXELS}",
        "it ge",
        f"cmpge r5, #{CHANNELS}",
        "it lt",
        "movlt r6, #1",
        f"str r1, [sp, #{_WEIGHTS}]",
        f"str r2, [sp, #{_LAST}]",
        f"strd r3, r4, [sp, #{_OUTPUT}]",
        f"str r6, [sp, #{_SPECIAL}]",
    )
    r.label("2")
    r.straight(_start())
    r.label("3", is_loop=True)  # another step of the depth
    if is_whole:
        r.straight([*_loop(step, is_whole=True), *_finish()])
    else:
        r.straight(_loop(step, is_whole=False), is_loop=True)
        r.plain("bne 3b")
        r.straight(_finish())
    r.plain("bne 8f")
    r.straight([*_store("lr"), compare("lr", PIXELS), *_start()])
    r.plain("bge 3b", "cmp lr, #0", "ble 5f", "mov lr, #1", f"str lr, [sp, #{_SPECIAL}]", "b 3b")
    r.label("5")
    r.plain(
        f"ldr r2, [sp, #{_COLUMN}]",
        f"ldr r3, [sp, #{_SCALING}]",
        f"ldr r4, [sp, #{_CHANNELS_LEFT}]",
        f"ldr r1, [sp, #{_WEIGHTS}]",
        f"ldr r5, [sp, #{_PANEL_BYTES}]",
        f"adds r2, #{CHANNELS}",
        f"adds r3, #{_SCALING_BYTES}",
        "add r1, r1, r5",
        f"str r2, [sp, #{_COLUMN}]",
        f"str r3, [sp, #{_SCALING}]",
        f"subs r4, #{CHANNELS}",
        f"str r4, [sp, #{_CHANNELS_LEFT}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "pop {r4-r11, pc}",
    )
    r.label("8")
    r.plain(f"ldr r2, [sp, #{_CLAMPS}]", "cmp r2, #0", "beq 4f")
    r.straight(_clamp())
    r.label("4")
    r.straight(
        [
            load("r10", "sp", _OUTPUT),
            load("r11", "sp", _CHANNELS_SLOT),
            load("r3", "sp", _LEFT),
            load("r2", "sp", _CHANNELS_LEFT),
            compare("r3", PIXELS),
        ]
    )
    # Fewer than three pixels, or one channel: byte by byte.
    r.plain("blt 6f", f"cmp r2, #{CHANNELS}", "blt 6f")
    r.straight([*_store("r3"), compare("r3", 0)])
    r.plain("bgt 2b", "b 5b")
    r.label("6")
    for pixel, (register, _) in enumerate(_ACCUMULATORS):
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
        f"str r10, [sp, #{_OUTPUT}]",
        f"str r3, [sp, #{_LEFT}]",
        "bgt 2b",
        "b 5b",
    )
    return r


def _start() -> list[Instruction]:
    """What the inner loop finds: r0 goes on from tile to tile."""
    (low, high), *others = _ACCUMULATORS
    code = [load("r12", "sp", _SCALING), load_pair(low, high, "r12"), load("r1", "sp", _WEIGHTS)]
    for pair in others:
        code += [move(pair[0], low), move(pair[1], high)]
    first, second = _WEIGHT[0]
    return [
        *code,
        load(_PIXEL[0], "r0"),
        load(_PIXEL[1], "r0", 4),
        load(first, "r1"),
        extend16(second, first, 8),
        extend16(first, first),
    ]


def _loop(step: int, *, is_whole: bool) -> list[Instruction]:
    code: list[Instruction] = []
    phases, group_bytes = step // 2, step * PIXELS * 2
    if not is_whole:
        # Early, so that the branch is known to be taken or not in time.
        spare = _WEIGHT[1][1]
        code += [load(spare, "sp", _LAST), compare("r1", spare)]
    for phase in range(phases):
        now, then = _WEIGHT[phase % 2], _WEIGHT[(phase + 1) % 2]
        last = phase == phases - 1
        if not (last and is_whole):
            code.append(load(then[0], "r1", 4 * (phase + 1), write_back=last))
            code += [extend16(then[1], then[0], 8), extend16(then[0], then[0])]
        for pixel, pair in enumerate(_ACCUMULATORS):
            number = PIXELS * phase + pixel
            register = _PIXEL[number % 2]
            code += [
                multiply_add("smlad", pair[0], register, now[0], pair[0]),
                multiply_add("smlad", pair[1], register, now[1], pair[1]),
            ]
            ahead = 4 * (number + 2)
            if ahead < group_bytes:
                code.append(load(register, "r0", ahead))
            elif is_whole:
                continue
            elif ahead == group_bytes:
                code.append(load(register, "r0", ahead, write_back=True))
            else:
                code.append(load(register, "r0", ahead - group_bytes))
    if is_whole:
        code.append(add("r0", "r0", group_bytes))
    return code


def _finish() -> list[Instruction]:
    """Requantized; r10 and r11 as stores need them; the flags tell whether the tile is special."""
    code = [load("r10", "sp", _SCALING)]
    for channel in range(CHANNELS):
        accumulators = tuple(pair[channel] for pair in _ACCUMULATORS)
        multiplier, offset, shift = ("r2", "r3", "r12") if channel == 0 else ("lr", "r1", "r12")
        code += [
            load(multiplier, "r10", 8 + 4 * channel),
            load(offset, "r10", 16 + 4 * channel),
            load(shift, "r10", 24 + 4 * channel),
            *scaled(accumulators, multiplier, offset, shift, "r11"),
        ]
    code += [insert_byte(low, high, 1) for low, high in _ACCUMULATORS]
    return [
        *code,
        load("r2", "sp", _SPECIAL),
        load("r10", "sp", _OUTPUT),
        load("r11", "sp", _CHANNELS_SLOT),
        compare("r2", 0),
    ]


def _store(left: str) -> list[Instruction]:
    """Three pixels of two channels; ``left`` becomes the pixels that are left."""
    low = [pair[0] for pair in _ACCUMULATORS]
    return [
        add_shifted("r12", "r10", "r11", "lsl #1"),
        store(low[0], "r10", size="h"),
        store(low[1], "r10", "r11", size="h"),
        store(low[2], "r12", size="h"),
        add("r12", "r12", "r11"),
        load(left, "sp", _LEFT),
        subtract(left, left, PIXELS),
        store("r12", "sp", _OUTPUT),
        store(left, "sp", _LEFT),
    ]


def _clamp() -> list[Instruction]:
    code = [load("r10", "sp", _LOW), load("r11", "sp", _HIGH)]
    for low, _ in _ACCUMULATORS:
        code += [
            # SEL takes the flags of the subtraction before it: the two stay together.
            *selected("r12", low, "r10", low, "r10"),
            *selected("r12", "r11", low, low, "r11"),
        ]
    return code


def selected(temporary: str, left: str, right: str, value: str, bound: str) -> list[Instruction]:
    """value = left >= right (byte by byte, signed) ? value : bound."""
    flags = ("ge",)
    difference = simd("ssub8", temporary, left, right)
    chosen = simd("sel", value, value, bound)
    return [
        Instruction(
            difference.text,
            difference.kind,
            difference.first,
            difference.second,
            writes=(*difference.writes, *flags),
        ),
        Instruction(
            chosen.text, chosen.kind, chosen.first, (*chosen.second, *flags), writes=chosen.writes
        ),
    ]
