"""The inner block of fully connected layers: six outputs at a time, weights streamed once.

The vector is widened first, once for all outputs. Two outputs share a word of weights and one
SXTB16: its halfwords are 256 b + a + 128, where a and b are weights of the two. Multiplied as they
are they give 256 B + A + 128 X, with A and B the sums wanted and X that of the inputs; the high
bytes, extracted, give B, and A is what remains. Outputs that do not fill six are done in pairs, by
code that all layers share; or as one last group, whose odd output is multiplied alone.
``dense_tables.py`` has the layouts.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

from utvm_deploy.cores.timing import Timing
from utvm_deploy.kernels.isa.dsp import selected
from utvm_deploy.kernels.isa.instructions import (
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
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text
from utvm_deploy.kernels.native.dsp.dense_layer import SCALING_WORDS
from utvm_deploy.kernels.native.dsp.dense_tables import OUTPUTS, PAIR
from utvm_deploy.kernels.native.dsp.tile import clamp_words

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


class DenseForm(NamedTuple):
    """What the code depends on."""

    step: int
    is_scaled_by_channel: bool
    is_preloading: bool
    tail: int = 0  # outputs of the last group; 0: what does not fill six is done in pairs

    @property
    def name(self) -> str:
        """The C function."""
        channels = "_channels" if self.is_scaled_by_channel else ""
        tail = f"_and_{self.tail}" if self.tail else ""
        return f"utvm_dense_{self.step}{channels}{'_preload' if self.is_preloading else ''}{tail}"


@lru_cache(maxsize=16)
def dense_text(core: str, form: DenseForm) -> str:
    """The C text of the function, ordered for a core."""
    portable = "utvm_dense_tail" if form.tail else "utvm_dense"
    return c_text(form.name, PARAMETERS, _routine(timing_of(core), form), portable=portable)


def _routine(timing: Timing, form: DenseForm) -> Routine:
    r = Routine(timing)
    _begin(r)
    _widen(r)
    r.plain(
        "sub r1, r2, #4",  # the inner loop's offsets count from one word before
        "lsl r4, r4, #7",
        f"str r4, [sp, #{_OFFSET}]",
        f"ldr r9, [sp, #{_LEFT}]",
    )
    _sixes(r, form)
    if form.tail:
        _tail(r, form)
    else:
        _pairs(r, form)
    r.label("7")
    r.plain(f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    for label, back, count in (("8", "3b", OUTPUTS), ("9", "10b", form.tail or PAIR)):
        r.label(label)
        code = [load("r10", "sp", _LOW), load("r12", "sp", _HIGH)]
        for register in _ACCUMULATORS[:count:2]:
            code += selected("r2", register, "r10", register, "r10")
            code += selected("r2", "r12", register, register, "r12")
        r.straight(code)
        r.plain(f"b {back}")
    return r


def _begin(r: Routine) -> None:
    """Arguments into slots, and what ``_widen`` wants into registers."""
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


def _sixes(r: Routine, form: DenseForm) -> None:
    """Six outputs after six; behind label 4, r9 is how many are left."""
    r.label("1")
    r.plain(f"subs r9, r9, #{OUTPUTS}", "blt 4f", f"str r9, [sp, #{_LEFT}]")
    r.straight([*_start(OUTPUTS), load(_WEIGHT[0], "r1", 4), load(_WEIGHT[1], "r1", 8)])
    r.label("2", is_loop=True)
    r.straight(_loop(form.step, form.is_preloading), is_loop=True)
    r.plain("bne 2b")
    r.straight(_finish(OUTPUTS, form.is_scaled_by_channel))
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


def _pairs(r: Routine, form: DenseForm) -> None:
    """Two outputs after two, perhaps none; of the last pair perhaps one."""
    r.plain(f"adds r9, r9, #{OUTPUTS}", "ble 7f", f"str r9, [sp, #{_LEFT}]")
    r.label("5")
    r.straight(_start(PAIR))
    r.label("6", is_loop=True)
    r.straight(_pair_loop(form.step), is_loop=True)
    r.plain("bne 6b")
    r.straight(_finish(PAIR, form.is_scaled_by_channel))
    r.plain("bne 9f", "10:", f"ldr r9, [sp, #{_LEFT}]", "subs r9, #2", "blt 11f")
    r.straight([store_next("r4", "r0", PAIR, size="h"), store("r9", "sp", _LEFT)])
    r.plain(f"str r0, [sp, #{_OUTPUT}]", "bgt 5b", "b 7f")
    r.label("11")
    r.plain("strb r4, [r0]")


def _tail(r: Routine, form: DenseForm) -> None:
    """The last group."""
    r.straight(_start(form.tail))
    r.label("6", is_loop=True)
    r.straight(_tail_loop(form.step, form.tail), is_loop=True)
    r.plain("bne 6b")
    r.straight(_finish(form.tail, form.is_scaled_by_channel))
    r.plain("bne 9f", "10:")
    lows = enumerate(_ACCUMULATORS[: form.tail // 2 * 2 : 2])
    r.straight([store(a, "r0", 2 * n, size="h") for n, a in lows])
    if form.tail % 2:
        r.straight([store(_ACCUMULATORS[form.tail - 1], "r0", form.tail - 1, size="b")])


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


def _tail_loop(step: int, tail: int) -> list[Instruction]:
    """All outputs of the last group."""
    x = ("r2", "r3")
    ring = (*_ACCUMULATORS[tail:], "r10", "r12", "lr")
    spare = itertools.cycle(ring)
    code: list[Instruction] = []
    at = 4

    def weights() -> str:
        nonlocal at
        register = next(spare)
        code.append(load(register, "r1", at))
        at += 4
        return register

    for quad in range(step // 4):
        for phase in range(2):
            code.append(load(x[phase], "r0", 8 * quad + 4 * phase))
            for a, b in zip(_ACCUMULATORS[: tail - 1 : 2], _ACCUMULATORS[1:tail:2], strict=True):
                w = weights()
                code += [
                    multiply_add("smlad", a, w, x[phase], a),
                    extend16(w, w, 8),
                    multiply_add("smlad", b, w, x[phase], b),
                ]
        if tail % 2:
            total, w, other = _ACCUMULATORS[tail - 1], weights(), next(spare)
            code += [
                extend16(other, w, 8),
                extend16(w, w),
                multiply_add("smlad", total, w, x[0], total),
                multiply_add("smlad", total, other, x[1], total),
            ]
    code += [add("r1", "r1", tail * step), add("r0", "r0", 2 * step)]
    return [*code, compare("r0", "r11")]


def _finish(outputs: int, is_scaled_by_channel: bool) -> list[Instruction]:
    """Requantized, in pairs as halfwords, an odd one as a byte.

    r0 is the output; the flags tell whether to clamp.
    """
    accumulators = _ACCUMULATORS[:outputs]
    pairs = list(zip(accumulators[::2], accumulators[1::2], strict=False))
    code: list[Instruction] = [load("r0", "sp", _OFFSET)]
    for a, b in pairs:
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
    code += [insert_byte(a, b, 1) for a, b in pairs]
    code += [load("r2", "sp", _CLAMPS), load("r0", "sp", _OUTPUT), compare("r2", 0)]
    return code
