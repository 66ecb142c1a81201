"""The straight pieces of convolution tiles: up to three pixels by two channels in accumulators.

``gemm.py`` and ``columns_code.py`` put them between labels and branches. r0 stands before a tile's
pixels, r1 before its weights; the slots below lie on the stack of both.
"""

from __future__ import annotations

from collections.abc import Callable

from utvm_deploy.kernels.isa.dsp import selected
from utvm_deploy.kernels.isa.instructions import (
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
)

CHANNELS = 2
ACCUMULATORS = (("r4", "r5"), ("r6", "r7"), ("r8", "r9"))
_PIXEL = ("r10", "r11")
_WEIGHT = (("r2", "r3"), ("r12", "lr"))

# Slots on the stack.
LAST = 0  # the weights of this pair of channels when their last step begins
SCALING = 4
OUTPUT = 8  # where the next tile goes
LEFT = 12  # pixels
COLUMN = 16  # where the first tile of this pair of channels went
CHANNELS_LEFT = 20
CHANNELS_SLOT = 24
LOW = 28
HIGH = 32
CLAMPS = 36
WEIGHTS = 40  # of this pair of channels
SPECIAL = 44  # a tile that is clamped, or is not stored whole
PANEL_BYTES = 48
OTHER_SLOTS = 52

#: Where the word of a pixel and a phase lies, in bytes from r0.
Place = Callable[[int, int], int]


def limits_prologue(limits: str, low: int = LOW, clamps: int = CLAMPS) -> list[str]:
    """Limits at the address in a register into their slots, as ``clamp_words`` does it."""
    return [f"ldrsb r8, [{limits}]", f"ldrsb r9, [{limits}, #4]", *clamp_words(low, clamps)]


def clamp_words(low: int, clamps: int) -> list[str]:
    """The limits in r8 and r9, in each of four bytes, into the slots from ``low`` on.

    The slot ``clamps`` tells whether they limit anything; r10 and r12 are lost.
    """
    return [
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
        f"strd r8, r9, [sp, #{low}]",
        f"str r12, [sp, #{clamps}]",
    ]


def next_channels(scaling_bytes: int, frame_bytes: int) -> list[str]:
    """On to label 1 with the next pair of channels; behind the last, back to the caller."""
    return [
        f"ldr r2, [sp, #{COLUMN}]",
        f"ldr r3, [sp, #{SCALING}]",
        f"ldr r4, [sp, #{CHANNELS_LEFT}]",
        f"ldr r1, [sp, #{WEIGHTS}]",
        f"ldr r5, [sp, #{PANEL_BYTES}]",
        f"adds r2, #{CHANNELS}",
        f"adds r3, #{scaling_bytes}",
        "add r1, r1, r5",
        f"str r2, [sp, #{COLUMN}]",
        f"str r3, [sp, #{SCALING}]",
        f"subs r4, #{CHANNELS}",
        f"str r4, [sp, #{CHANNELS_LEFT}]",
        "bgt 1b",
        f"add sp, #{frame_bytes}",
        "pop {r4-r11, pc}",
    ]


def start(pixels: int) -> list[Instruction]:
    """Accumulators at the bias, and the first weights."""
    (low, high), *others = ACCUMULATORS[:pixels]
    code = [load("r12", "sp", SCALING), load_pair(low, high, "r12"), load("r1", "sp", WEIGHTS)]
    for pair in others:
        code += [move(pair[0], low), move(pair[1], high)]
    first, second = _WEIGHT[0]
    return [*code, load(first, "r1"), extend16(second, first, 8), extend16(first, first)]


def first_pixels(pixels: int, place: Place) -> list[Instruction]:
    """The two words of pixels that the loop finds."""
    return [load(_PIXEL[n], "r0", place(n // pixels, n % pixels)) for n in range(2)]


def loop(
    pixels: int, step: int, place: Place, step_bytes: int, *, is_whole: bool
) -> list[Instruction]:
    """The products of a step; where it is not the whole depth, r0 and r1 go on, by ``step_bytes``.

    Loads run ahead by one word of weights and two of pixels.
    """
    code: list[Instruction] = []
    phases = step // 2
    if not is_whole:
        # Early, so that the branch is known to be taken or not in time.
        spare = _WEIGHT[1][1]
        code += [load(spare, "sp", LAST), compare("r1", spare)]
    for phase in range(phases):
        now, then = _WEIGHT[phase % 2], _WEIGHT[(phase + 1) % 2]
        last = phase == phases - 1
        if not (last and is_whole):
            code.append(load(then[0], "r1", 4 * (phase + 1), write_back=last))
            code += [extend16(then[1], then[0], 8), extend16(then[0], then[0])]
        for pixel, pair in enumerate(ACCUMULATORS[:pixels]):
            number = pixels * phase + pixel
            register = _PIXEL[number % 2]
            code += [
                multiply_add("smlad", pair[0], register, now[0], pair[0]),
                multiply_add("smlad", pair[1], register, now[1], pair[1]),
            ]
            ahead, other = divmod(number + 2, pixels)
            if ahead < phases:
                code.append(load(register, "r0", place(ahead, other)))
            elif is_whole:
                continue
            elif number + 2 == pixels * phases:
                code.append(load(register, "r0", step_bytes, write_back=True))
            else:
                code.append(load(register, "r0", place(ahead - phases, other)))
    return code


def finish(pixels: int) -> list[Instruction]:
    """Requantized; r10 and r11 as stores need them; the flags tell whether the tile is special."""
    accumulators = ACCUMULATORS[:pixels]
    code = [load("r10", "sp", SCALING)]
    for channel in range(CHANNELS):
        multiplier, offset, shift = ("r2", "r3", "r12") if channel == 0 else ("lr", "r1", "r12")
        code += [
            load(multiplier, "r10", 8 + 4 * channel),
            load(offset, "r10", 16 + 4 * channel),
            load(shift, "r10", 24 + 4 * channel),
            *scaled(
                tuple(pair[channel] for pair in accumulators), multiplier, offset, shift, "r11"
            ),
        ]
    code += [insert_byte(low, high, 1) for low, high in accumulators]
    return [
        *code,
        load("r2", "sp", SPECIAL),
        load("r10", "sp", OUTPUT),
        load("r11", "sp", CHANNELS_SLOT),
        compare("r2", 0),
    ]


def clamp(pixels: int) -> list[Instruction]:
    """Both channels of each pixel within the limits."""
    code = [load("r10", "sp", LOW), load("r11", "sp", HIGH)]
    for low, _ in ACCUMULATORS[:pixels]:
        code += [
            # SEL takes the flags of the subtraction before it: the two stay together.
            *selected("r12", low, "r10", low, "r10"),
            *selected("r12", "r11", low, low, "r11"),
        ]
    return code


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
