"""The inner block of pooling: one pixel of all channels, four channels in a word.

Largest values are chosen byte by byte, by SSUB8 and SEL. Sums are kept as halfwords, two in a
register, so a window may have 255 positions. A mean is floor((2 * sum + count - [sum < 0]) /
(2 * count)), which rounds halves away from zero; it is raised by 128 so that it is no negative
number, and divided by a multiplication, which is exact for such small numbers.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.cores.timing import Kind, Timing
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.dsp import selected
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    add_shifted,
    extend16_add,
    insert_byte,
    load,
    shift_right,
    store_next,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text, helper
from utvm_deploy.kernels.native.dsp.tile import clamp_words

#: Positions of a window whose sums fit halfwords.
MOST_POSITIONS = 255
PARAMETERS = (
    "const int8_t *from",
    "int8_t *to",
    "int32_t rows",
    "int32_t columns",
    "int32_t row_bytes",
    "int32_t channels",
    "int32_t low",
    "int32_t high",
)
_REGISTERS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
_SAVED_BYTES = 36
# Slots on the stack.
_FROM = 0
_TO = 4
_ROWS = 8
_COLUMNS = 12
_LEFT = 16  # channels
_ROWS_LEFT = 20
_LOW = 24
_HIGH = 28
_CLAMPS = 32
_RAISED = 36  # 257 times the count
_RECIPROCAL = 40  # 2**31 / count
_FRAME_BYTES = 44
_ROW_BYTES = _FRAME_BYTES + _SAVED_BYTES
_CHANNELS = _ROW_BYTES + 4


def name_of(is_average: bool) -> str:
    """The C function for a window."""
    return "utvm_average_pixel" if is_average else "utvm_max_pixel"


@lru_cache(maxsize=8)
def pool_text(core: str, is_average: bool) -> str:
    """The C text of ``utvm_pool_average`` or ``utvm_pool_max``, ordered for a core."""
    name = name_of(is_average)
    pixel = c_text(name, PARAMETERS, _routine(timing_of(core), is_average))
    names = ("UTVM_PIXEL", name, 1), ("UTVM_POOL", driver_of(is_average), 1)
    return f"{pixel}\n{replaced(helper('utvm_pool'), *names)}"


def driver_of(is_average: bool) -> str:
    """The C function for an image."""
    return "utvm_pool_average" if is_average else "utvm_pool_max"


def _routine(timing: Timing, is_average: bool) -> Routine:
    r = Routine(timing)
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"strd r0, r1, [sp, #{_FROM}]",
        f"strd r2, r3, [sp, #{_ROWS}]",
        f"ldr r4, [sp, #{_CHANNELS}]",
        f"ldrd r8, r9, [sp, #{_CHANNELS + 4}]",
        f"str r4, [sp, #{_LEFT}]",
        *clamp_words(_LOW, _CLAMPS),
    )
    if is_average:
        r.plain(
            "mul r2, r2, r3",
            "mov r5, #0x80000000",
            "udiv r6, r5, r2",
            "mls r5, r6, r2, r5",
            "cmp r5, #0",
            "it ne",
            "addne r6, r6, #1",
            "add r5, r2, r2, lsl #8",
            f"strd r5, r6, [sp, #{_RAISED}]",
        )
    most = 4 if is_average else 8
    r.label("1")  # more channels
    r.plain(f"ldr r2, [sp, #{_LEFT}]", f"cmp r2, #{4 * most}", "blt 11f")
    _group(r, most, is_average)
    r.plain("b 1b")
    r.label("11")
    # What is left, in halves: each at most once.
    for number, words in enumerate((4, 2)[is_average:]):
        r.plain(f"cmp r2, #{4 * words}", f"blt {12 + number}f")
        _group(r, words, is_average)
        r.label(f"{12 + number}")
    r.label("5")
    r.plain(
        "cmp r2, #0",
        "ble 9f",
        "cmp r2, #4",
        "bge 6f",
        # The last word once more, in part.
        "rsb r2, r2, #4",
        f"ldrd r0, r1, [sp, #{_FROM}]",
        "sub r0, r0, r2",
        "sub r1, r1, r2",
        f"strd r0, r1, [sp, #{_FROM}]",
        "mov r2, #4",
        f"str r2, [sp, #{_LEFT}]",
    )
    r.label("6")
    _group(r, 1, is_average)
    r.plain("b 5b")
    r.label("9")
    r.plain(f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    return r


def _group(r: Routine, words: int, is_average: bool) -> None:
    """So many words of channels of one pixel."""
    accumulators = _REGISTERS[: words * (2 if is_average else 1)]
    start = "#0" if is_average else "#0x80808080"
    r.plain(
        f"ldr r1, [sp, #{_FROM}]",
        f"ldr r0, [sp, #{_ROWS}]",
        f"ldr r3, [sp, #{_CHANNELS}]",
        f"str r0, [sp, #{_ROWS_LEFT}]",
        *(f"mov {register}, {start}" for register in accumulators),
    )
    r.label("2")  # another row
    r.plain("mov r0, r1", f"ldr r2, [sp, #{_COLUMNS}]")
    r.label("3", is_loop=True)  # another position
    code: list[Instruction] = []
    for word in range(words):
        if is_average:
            value = ("r12", "lr")[word % 2]
            even, odd = accumulators[2 * word : 2 * word + 2]
            code += [
                load(value, "r0", 4 * word),
                extend16_add(even, even, value),
                extend16_add(odd, odd, value, 8),
            ]
        else:
            largest = accumulators[word]
            code += [load("r12", "r0", 4 * word), *selected("lr", largest, "r12", largest, "r12")]
    r.straight([*code, add("r0", "r0", "r3"), subtract_flags("r2", "r2", 1)], is_loop=True)
    r.plain(
        "bgt 3b",
        f"ldr r0, [sp, #{_ROWS_LEFT}]",
        f"ldr r12, [sp, #{_ROW_BYTES}]",
        "subs r0, r0, #1",
        "add r1, r1, r12",
        f"str r0, [sp, #{_ROWS_LEFT}]",
        "bgt 2b",
    )
    results = accumulators
    if is_average:
        results = accumulators[::2]
        r.plain(f"ldrd r0, r1, [sp, #{_RAISED}]")
        r.straight(_means(accumulators))
    r.plain(f"ldr r2, [sp, #{_CLAMPS}]", "cmp r2, #0", "beq 4f")
    bounds = [load("r12", "sp", _LOW), load("lr", "sp", _HIGH)]
    for register in results:
        bounds += selected("r2", register, "r12", register, "r12")
        bounds += selected("r2", "lr", register, register, "lr")
    r.straight(bounds)
    r.label("4")
    r.straight([load("r1", "sp", _TO), *(store_next(register, "r1", 4) for register in results)])
    r.plain(
        f"ldr r0, [sp, #{_FROM}]",
        f"ldr r2, [sp, #{_LEFT}]",
        f"add r0, r0, #{4 * words}",
        f"sub r2, r2, #{4 * words}",
        f"strd r0, r1, [sp, #{_FROM}]",
        f"str r2, [sp, #{_LEFT}]",
    )


def _means(accumulators: tuple[str, ...]) -> list[Instruction]:
    """In each even register, four means; r0 is what they are raised by, r1 the reciprocal."""
    code: list[Instruction] = []
    for even, odd in zip(accumulators[::2], accumulators[1::2], strict=True):
        # Bytes 3 and 2 first: their halves stand above those of 1 and 0.
        code += [shift_right("r2", odd, 16), *_mean("r2", "r3")]
        code += [shift_right("r12", even, 16), *_mean("r12", "lr")]
        code += [_low_half(odd, odd), *_mean(odd, "r3"), _low_half(even, even), *_mean(even, "lr")]
        code += [insert_byte(even, odd, 1), insert_byte(even, "r12", 2), insert_byte(even, "r2", 3)]
        code.append(_flip(even))
    return code


def _mean(value: str, temporary: str) -> list[Instruction]:
    """The mean raised by 128, in place."""
    product = Instruction(
        f"umull {temporary}, {value}, {temporary}, r1",
        Kind.MULTIPLY,
        first=(temporary,),
        second=("r1",),
        writes=(temporary, value),
    )
    return [
        add_shifted(temporary, "r0", value, "asr #31"),
        add_shifted(temporary, temporary, value, "lsl #1"),
        product,
    ]


def _low_half(target: str, source: str) -> Instruction:
    return Instruction(f"sxth {target}, {source}", Kind.EXTEND, second=(source,), writes=(target,))


def _flip(target: str) -> Instruction:
    """Takes 128 off each byte."""
    text = f"eor {target}, {target}, #0x80808080"
    return Instruction(text, Kind.LOGIC, first=(target,), writes=(target,))
