"""The inner block of fully connected layers: six outputs at a time, weights streamed once.

The vector is widened first, once for all outputs. Two outputs share a word of weights and one
SXTB16: its halfwords are 256 b + a + 128, where a and b are weights of the two. Multiplied as they
are they give 256 B + A + 128 X, with A and B the sums wanted and X that of the inputs; the high
bytes, extracted, give B, and A is what remains. Outputs that do not fill six are done in pairs.

wide     int16 [quad][phase][lane], k = 4 q + 2 l + f
weights  int8  [group: six outputs, then two][quad][phase][pair of outputs][lane][a + 128, b]
bias     int32 [two outputs][bias of a + 256 bias of b, bias of b]
scaling  int32 [1, or outputs filled up to pairs][multiplier, low and high word of the offset,
         shift - 32]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.dsp.code import c_text
from utvm_deploy.kernels.dsp.dense_layer import SCALING_WORDS
from utvm_deploy.kernels.dsp.tile import clamp_words, selected
from utvm_deploy.kernels.micro.assembly import (
    Instruction,
    add,
    add_shifted,
    compare,
    extend16,
    insert_byte,
    load,
    load_next,
    multiply_add,
    multiply_long,
    preload,
    saturate,
    shift_right,
    store,
    store_next,
    subtract,
    subtract_flags,
)
from utvm_deploy.kernels.micro.order import timing_of
from utvm_deploy.kernels.micro.routine import Routine

OUTPUTS = 6
PAIR = 2
#: The vector is padded with zeros to a multiple of the inner loop's step.
STEPS = (16, 8)
#: The loop's loads run ahead by two words of weights.
SLACK_BYTES = 8
PARAMETERS = (
    "const int8_t *vector",
    "int16_t *wide",
    "const int8_t *weights",
    "const int32_t *bias",
    "const int32_t *scaling",
    "int32_t scaling_step",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t inputs",
    "int32_t padded",
    "int32_t outputs",
)

_ACCUMULATORS = ("r4", "r5", "r6", "r7", "r8", "r9")
_INPUT = ("r2", "r10")
_WEIGHT = ("r3", "r12", "lr")
_SAVED_BYTES = 36
# Slots on the stack.
_BIAS = 0
_WIDE = 4
_OFFSET = 8  # 128 times the sum of all inputs
_OUTPUT = 12
_LEFT = 16
_LOW = 20
_HIGH = 24
_CLAMPS = 28
_TABLE = 32  # of scales
_SCALES = 36  # of the only scale: four words
_FRAME_BYTES = 52
_LINE_BYTES = 32


def groups_of(outputs: int) -> tuple[int, int]:
    """How many times six outputs, and how many pairs."""
    return outputs // OUTPUTS, -(-(outputs % OUTPUTS) // PAIR)


def filled(outputs: int) -> int:
    """Outputs that tables have entries for."""
    return -(-outputs // PAIR) * PAIR


def pack_weights(weights: Array, step: int) -> Array:
    """[outputs, inputs] -> the layout above, with slack."""
    outputs, inputs = weights.shape
    padded = padded_inputs(inputs, step)
    whole = groups_of(outputs)[0] * OUTPUTS
    full = np.zeros((filled(outputs), padded), dtype=np.int16)
    full[:outputs, :inputs] = weights
    parts = []
    for rows, size in ((full[:whole], OUTPUTS), (full[whole:], PAIR)):
        # group, pair, side, quad, lane, phase -> group, quad, phase, pair, lane, side
        split = rows.reshape(-1, size // 2, 2, padded // 4, 2, 2).transpose(0, 3, 5, 1, 4, 2)
        parts.append(split.reshape(-1, 2))
    pairs = np.concatenate(parts)
    pairs[:, 0] ^= -128
    packed = pairs.astype(np.int8).reshape(-1)
    return np.concatenate([packed, np.zeros(SLACK_BYTES, dtype=np.int8)])


def pack_bias(bias: Array) -> Array:
    """What the accumulators start with, so that a's is right when 256 b is taken off."""
    full = np.zeros((filled(bias.size) // PAIR, PAIR), dtype=np.int64)
    full.reshape(-1)[: bias.size] = bias
    full[:, 0] += 256 * full[:, 1]
    wrapped: Array = full.reshape(-1).astype(np.uint32).view(np.int32)
    return wrapped


def padded_inputs(inputs: int, step: int) -> int:
    """Inputs that the inner loop does."""
    return -(-inputs // step) * step


def best_step(inputs: int) -> int:
    """The longest step that pads least."""
    return min(STEPS, key=lambda step: padded_inputs(inputs, step))


def name_of(step: int, is_scaled_by_channel: bool, is_preloading: bool) -> str:
    """The C function."""
    channels = "_channels" if is_scaled_by_channel else ""
    return f"utvm_dense_{step}{channels}{'_preload' if is_preloading else ''}"


@lru_cache(maxsize=16)
def dense_text(core: str, step: int, is_scaled_by_channel: bool, is_preloading: bool) -> str:
    """The C text of the function, ordered for a core."""
    routine = _routine(timing_of(core), step, is_scaled_by_channel, is_preloading)
    name = name_of(step, is_scaled_by_channel, is_preloading)
    return c_text(name, PARAMETERS, routine, portable="utvm_dense")


def _routine(timing: Timing, step: int, is_scaled_by_channel: bool, is_preloading: bool) -> Routine:
    r = Routine(timing)
    arguments = _FRAME_BYTES + _SAVED_BYTES
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"str r1, [sp, #{_WIDE}]",
        f"str r3, [sp, #{_BIAS}]",
        f"ldr r4, [sp, #{arguments}]",
        f"str r4, [sp, #{_TABLE}]",
        f"ldr r5, [sp, #{arguments + 8}]",
        f"ldr r6, [sp, #{arguments + 12}]",
        f"ldr r7, [sp, #{arguments + 24}]",
        f"str r6, [sp, #{_OUTPUT}]",
        f"str r7, [sp, #{_LEFT}]",
        "ldrsb r8, [r5]",
        "ldrsb r9, [r5, #4]",
        "ldm r4, {r4-r7}",
        f"strd r4, r5, [sp, #{_SCALES}]",
        f"strd r6, r7, [sp, #{_SCALES + 8}]",
        *clamp_words(_LOW, _CLAMPS),
        f"ldr r3, [sp, #{arguments + 16}]",
        f"ldr r11, [sp, #{arguments + 20}]",
        "add r11, r1, r11, lsl #1",
    )
    _widen(r)
    r.plain(
        "sub r1, r2, #4",  # the inner loop's offsets count from one word before
        "lsl r4, r4, #7",
        f"str r4, [sp, #{_OFFSET}]",
        f"ldr r9, [sp, #{_LEFT}]",
    )
    r.label("1")  # six more outputs
    r.plain(f"subs r9, r9, #{OUTPUTS}", "blt 4f", f"str r9, [sp, #{_LEFT}]")
    r.straight([*_start(OUTPUTS), load(_WEIGHT[0], "r1", 4), load(_WEIGHT[1], "r1", 8)])
    r.label("2", is_loop=True)
    r.straight(_loop(step, is_preloading), is_loop=True)
    r.plain("bne 2b")
    r.straight(_finish(OUTPUTS, is_scaled_by_channel))
    r.plain("bne 8f", "3:")
    r.straight(
        [
            load("r9", "sp", _LEFT),
            *(store(f"r{4 + 2 * n}", "r0", 2 * n, size="h") for n in range(OUTPUTS // 2)),
            add("r0", "r0", OUTPUTS),
            store("r0", "sp", _OUTPUT),
        ]
    )
    r.plain("b 1b")
    r.label("4")
    r.plain(f"adds r9, r9, #{OUTPUTS}", "ble 7f", f"str r9, [sp, #{_LEFT}]")
    r.label("5")  # two more
    r.straight(_start(PAIR))
    r.label("6", is_loop=True)
    r.straight(_pair_loop(step), is_loop=True)
    r.plain("bne 6b")
    r.straight(_finish(PAIR, is_scaled_by_channel))
    r.plain("bne 9f", "10:", f"ldr r9, [sp, #{_LEFT}]", "subs r9, #2", "blt 11f")
    r.straight([store_next("r4", "r0", PAIR, size="h"), store("r9", "sp", _LEFT)])
    r.plain(f"str r0, [sp, #{_OUTPUT}]", "bgt 5b", "b 7f")
    r.label("11")
    r.plain("strb r4, [r0]")
    r.label("7")
    r.plain(f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    for label, back, count in (("8", "3b", OUTPUTS), ("9", "10b", PAIR)):
        r.label(label)
        code = [load("r10", "sp", _LOW), load("r12", "sp", _HIGH)]
        for register in _ACCUMULATORS[:count:2]:
            code += selected("r2", register, "r10", register, "r10")
            code += selected("r2", "r12", register, register, "r12")
        r.straight(code)
        r.plain(f"b {back}")
    return r


def _widen(r: Routine) -> None:
    """From r0, r3 bytes, to r1 up to r11; r4 is the sum."""
    r.plain("mov r10, #0x00010001", "mov r4, #0", "subs r3, r3, #16", "blt 2f")
    r.label("1", is_loop=True)
    code: list[Instruction] = []
    for number in range(4):
        word, other = (("r5", "r6"), ("r7", "r8"), ("r9", "r12"))[number % 3]
        code += [load_next(word, "r0", 4), *_wide_quad(word, other, 8 * number)]
    r.straight([*code, add("r1", "r1", 32), subtract_flags("r3", "r3", 16)], is_loop=True)
    r.plain("bge 1b")
    r.label("2")
    r.plain("adds r3, r3, #12", "blt 4f")
    r.label("3", is_loop=True)
    code = [load_next("r5", "r0", 4), *_wide_quad("r5", "r6", 0), add("r1", "r1", 8)]
    r.straight([*code, subtract_flags("r3", "r3", 4)], is_loop=True)
    r.plain("bge 3b")
    r.label("4")
    r.plain(
        "adds r3, r3, #4",
        "beq 6f",
        # One to three bytes that are left.
        "ldrb r5, [r0]",
        "cmp r3, #2",
        "itt ge",
        "ldrbge r6, [r0, #1]",
        "orrge r5, r5, r6, lsl #8",
        "itt gt",
        "ldrbgt r6, [r0, #2]",
        "orrgt r5, r5, r6, lsl #16",
    )
    r.straight([*_wide_quad("r5", "r6", 0), add("r1", "r1", 8)])
    r.label("6")
    r.plain("mov r5, #0", "b 8f", "7:", "str r5, [r1], #4", "8:", "cmp r1, r11", "blo 7b")


def _wide_quad(word: str, other: str, offset: int) -> list[Instruction]:
    return [
        extend16(other, word, 8),
        extend16(word, word),
        store(word, "r1", offset),
        store(other, "r1", offset + 4),
        multiply_add("smlad", "r4", word, "r10", "r4"),
        multiply_add("smlad", "r4", other, "r10", "r4"),
    ]


def _start(outputs: int) -> list[Instruction]:
    accumulators = _ACCUMULATORS[:outputs]
    return [
        load("r0", "sp", _WIDE),
        load("r10", "sp", _BIAS),
        *(load(a, "r10", 4 * n) for n, a in enumerate(accumulators)),
        add("r10", "r10", 4 * outputs),
        store("r10", "sp", _BIAS),
    ]


def _loop(step: int, is_preloading: bool) -> list[Instruction]:
    """Six outputs; a word of weights is loaded when the last but one is multiplied."""
    pairs = OUTPUTS // 2
    words = step // 2 * pairs

    def weights(number: int) -> Instruction:
        register = _WEIGHT[number % words % len(_WEIGHT)]
        if number < words:
            return load(register, "r1", 4 * number + 4, write_back=number == words - 1)
        return load(register, "r1", 4 * (number - words) + 4)

    def vector(phase: int) -> Instruction:
        return load(_INPUT[phase % 2], "r0", 4 * phase)

    code = [vector(0), vector(1)]
    if is_preloading:
        # The lines that the next turn but one begins.
        code += [preload("r1", 8 * words + n) for n in range(0, 4 * words, _LINE_BYTES)]
    for number in range(words):
        phase, pair = divmod(number, pairs)
        a, b = _ACCUMULATORS[2 * pair : 2 * pair + 2]
        w, x = _WEIGHT[number % len(_WEIGHT)], _INPUT[phase % 2]
        code += [
            multiply_add("smlad", a, w, x, a),
            extend16(w, w, 8),
            multiply_add("smlad", b, w, x, b),
            weights(number + 2),
        ]
        if pair == pairs - 1 and phase + 2 < step // 2:
            code.append(vector(phase + 2))
    return [*code, add("r0", "r0", 2 * step), compare("r0", "r11")]


def _pair_loop(step: int) -> list[Instruction]:
    ring = ("r2", "r3", "r6", "r7", "r8", "r9", "r10", "r12", "lr")
    code: list[Instruction] = []
    for phase in range(step // 2):
        x, w = ring[2 * phase % len(ring)], ring[(2 * phase + 1) % len(ring)]
        code += [
            load(x, "r0", 4 * phase),
            load(w, "r1", 4 * phase + 4),
            multiply_add("smlad", "r4", w, x, "r4"),
            extend16(w, w, 8),
            multiply_add("smlad", "r5", w, x, "r5"),
        ]
    code += [add("r1", "r1", 2 * step), add("r0", "r0", 2 * step)]
    return [*code, compare("r0", "r11")]


def _finish(outputs: int, is_scaled_by_channel: bool) -> list[Instruction]:
    """Requantized, in pairs as halfwords; r0 the output; the flags tell whether to clamp."""
    accumulators = _ACCUMULATORS[:outputs]
    code: list[Instruction] = [load("r0", "sp", _OFFSET)]
    for a, b in zip(accumulators[::2], accumulators[1::2], strict=True):
        code += [add_shifted(a, a, b, "lsl #8", name="sub"), subtract(a, a, "r0")]
    base, first = ("r0", 0) if is_scaled_by_channel else ("sp", _SCALES)
    if is_scaled_by_channel:
        code.append(load("r0", "sp", _TABLE))
    else:
        code += [load("r2", base, first), load("r3", base, first + 12)]
    for number, register in enumerate(accumulators):
        at = first
        low, high = (("r10", "r12"), ("lr", "r0"))[number % 2]
        multiplier, shift = "r2", "r3"
        if is_scaled_by_channel:
            at = first + 4 * SCALING_WORDS * number
            low, high = ("r10", "r12")
            multiplier, shift = (("r2", "r3"), ("lr", "r3"))[number % 2]
            code += [load(multiplier, base, at), load(shift, base, at + 12)]
        code += [
            load(low, base, at + 4),
            load(high, base, at + 8),
            multiply_long(low, high, register, multiplier),
            shift_right(high, high, shift),
            saturate(register, high, 8),
        ]
    if is_scaled_by_channel:
        code += [add("r0", "r0", 4 * SCALING_WORDS * outputs), store("r0", "sp", _TABLE)]
    code += [
        insert_byte(a, b, 1) for a, b in zip(accumulators[::2], accumulators[1::2], strict=True)
    ]
    code += [load("r2", "sp", _CLAMPS), load("r0", "sp", _OUTPUT), compare("r2", 0)]
    return code
