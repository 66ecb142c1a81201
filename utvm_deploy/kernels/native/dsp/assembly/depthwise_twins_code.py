"""The inner block of depthwise convolutions over twins: two rows of outputs by one multiplication.

A word holds twins: two pixels of a channel that lie some rows apart, the upper one U and the lower
one L. Twins are U + 128 + 2**24 L, and a tap W is a weight times 2**(8 + f). So SMLAL adds

    W (U + 128 + 2**24 L) = 2**(8 + f) w (U + 128) + 2**32 2**f w L

to 64 bits: to the lower word for the output of the upper row, to the upper word for that of the
lower row. The lower word's bias is so large that this word is never negative, and borrows nothing.
As every channel has its f, all have one shift (``SHIFT``), and one SSAT shifts and saturates. A
limit below 127 (``is_cut``) is what QSUB8 leaves of 127: offsets have more by what it takes off.

    words    int32 [channel][row][column]
    table    int32 [channel][taps, then the bias of 64 bits, multiplier, offset of the upper and of
             the lower row]
    packed   int8 [channel][bias, multiplier, offsets (20 bytes), 8 + f, weights, zeros to a word]

The packed form is in flash. It is unpacked once for a block of channels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.single_rounding import single_scaling

#: Right shifts of what SMMLA gives for the lower row; that of the upper row has 8 bits more.
SHIFT, SPACING = 8, 8
#: Pairs of outputs of a block.
PAIRS = 3
#: Taps of a row whose weights are in registers.
_GROUP = 3
_SCALING_WORDS = 5
_FACTOR, _FIRST_WEIGHT = 20, 21  # places in the packed form
#: Pixels that a turn of a loop widens.
_LOOPED = 4
#: The largest offset of an address.
_REACH = 4095
_PARAMETERS = """
const int32_t *words, const int32_t *table, int8_t *output, int32_t apart, int32_t rows,
const int32_t *end
"""
_CUT_PARAMETERS = f"{_PARAMETERS}, const int32_t *cut"
#: What the C does with a limit.
_CUT = (
    ("to[0] = (int8_t)utvm_scale_once(", "to[0] = (int8_t)utvm_clamp(utvm_scale_once(", 1),
    ("to[apart] = (int8_t)utvm_scale_once(", "to[apart] = (int8_t)utvm_clamp(utvm_scale_once(", 1),
    ("SHIFT + SPACING)", "SHIFT + SPACING) - *cut, -128, 127)", 1),
    ("t[TAPS + 4], SHIFT)", "t[TAPS + 4], SHIFT) - *cut, -128, 127)", 1),
)
_WIDEN_PARAMETERS = "const int8_t *upper, const int8_t *lower, int32_t *to, int32_t quads"


class Twins(NamedTuple):
    """A variant of the inner block: what its code depends on."""

    rows: int
    columns: int
    row_stride: int
    stride: int
    pitch: int  # words of a row
    plane: int  # words of a channel
    width: int  # outputs of a row
    channels: int  # of the image and of the output
    seen: int  # columns of the image that windows see
    is_cut: bool = False  # outputs have a limit below 127

    @property
    def taps(self) -> int:
        """Taps of a channel, a word each; its bias and scaling follow them."""
        return self.rows * self.columns

    @property
    def channel_words(self) -> int:
        """Words of the table for a channel."""
        return self.taps + _SCALING_WORDS

    @property
    def packed_bytes(self) -> int:
        """Bytes of a channel in the packed form."""
        return -(-(_FIRST_WEIGHT + self.taps) // 4) * 4

    @property
    def unpack_function(self) -> str:
        """The C function that unpacks a table."""
        return f"utvm_unpack_twins_{self.taps}"

    @property
    def function(self) -> str:
        """The C function of the inner block."""
        return "utvm_twins_" + "_".join(map(str, self[:8])) + ("_cut" if self.is_cut else "")

    @property
    def widen_function(self) -> str:
        """The C function that makes words of pixels."""
        return f"utvm_widen_twins_{self.seen}_{self.channels}_{self.plane}"

    def instructions(self, pairs: int) -> int:
        """About the instructions of a channel for some pairs of outputs."""
        if not pairs:
            return 0
        words = self.rows * ((pairs - 1) * self.stride + self.columns)
        return (pairs + 1) * self.taps + words + (10 if self.is_cut else 8) * pairs + 12

    @property
    def fits(self) -> bool:
        """Whether all offsets of addresses are small enough."""
        pixels = 2 * _LOOPED  # the most that are widened at a time
        return max(12 * self.plane + 4 * pixels, pixels * self.channels) <= _REACH


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    output: Slot  # of the upper row, for the next channel
    apart: Slot  # bytes from the upper output to the lower
    end: Slot  # of the table
    words: Slot  # of the next block, of the first channel
    table: Slot
    first_output: Slot  # of the next block
    blocks: Slot  # that are left of a row
    rows: Slot  # that are left


class _CutSlots(_Slots):
    """The same, with a limit."""

    cut: Slot  # 127 less it


def twins_scaling(
    scaling: Scaling, weights: Array, zero_point: int, limits: tuple[int, int]
) -> tuple[Scaling, Scaling] | None:
    """The tables of the upper and of the lower row; None if one rounding is not exact.

    The arguments are those of ``single_scaling``.
    """
    factor = SHIFT + 1 - scaling.shift.astype(np.int64)
    # What is taken off of 127 is an int8 for QSUB8.
    if int(factor.min()) < 0 or limits[0] != -128 or limits[1] < 0:
        return None
    layer = scaling, weights, zero_point, limits
    upper = single_scaling(*layer, factor_bits=factor + SPACING, lifted=True)
    lower = single_scaling(*layer, factor_bits=factor)
    if upper is None or lower is None:
        return None
    cut = 127 - limits[1]
    more = cut << SHIFT + SPACING, cut << SHIFT
    upper, lower = (
        row._replace(offset=row.offset + np.int32(added))
        for row, added in zip((upper, lower), more, strict=True)
    )
    return upper, lower


def pack_twins(weights: Array, scaling: Scaling, rows: tuple[Scaling, Scaling]) -> Array:
    """The packed table, from weights of [channel, taps] and what ``twins_scaling`` gives."""
    upper, lower = rows
    factor = SHIFT + 1 + SPACING - scaling.shift.astype(np.int64)
    low = upper.bias.astype(np.int64) - (128 * weights.sum(axis=1, dtype=np.int64) << factor)
    high = lower.bias.astype(np.int64) + (low >> 32)
    words = np.stack([low, high, upper.multiplier, upper.offset, lower.offset], axis=1)
    heads = (words & 0xFFFFFFFF).astype("<u4").view(np.int8)
    packed = np.concatenate([heads, factor.astype(np.int8)[:, None], weights], axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4))).reshape(-1)


def unpack_text(variant: Twins) -> str:
    """The C text of ``unpack_function``: from the packed form to the table."""
    taps = variant.taps
    lines = [
        f"const int32_t factor = 1 << packed[{_FACTOR}];",
        *(f"table[{n}] = packed[{_FIRST_WEIGHT + n}] * factor;" for n in range(taps)),
        f"__builtin_memcpy(table + {taps}, packed, {_FACTOR});",
        f"packed += {variant.packed_bytes};",
        f"table += {variant.channel_words};",
    ]
    body = "".join(f"        {line}\n" for line in lines)
    return (
        f"UTVM_ONCE static void {variant.unpack_function}(\n"
        "    const int8_t *packed, int32_t *table, int32_t channels) {\n"
        f"    for (int32_t c = 0; c < channels; c++) {{\n{body}    }}\n}}\n"
    )


@code_cache
def twins_text(core: str, variant: Twins) -> str:
    """The C text of the function, ordered for a core."""
    a = Assembler(core, _CUT_PARAMETERS if variant.is_cut else _PARAMETERS)
    a.enter(frame=_CutSlots if variant.is_cut else _Slots)
    a.store(r0=_Slots.words, r1=_Slots.table, r2=_Slots.first_output, r3=_Slots.apart)
    a.copy_arguments("r4", _Slots, "rows", "end")
    if variant.is_cut:
        a.ldr("r4", a.stack_argument("cut"))
        a.ldr("r4", at("r4"))
        a.str("r4", _CutSlots.cut)
    blocks, rest = divmod(variant.width, PAIRS)
    with a.loop("gt"):  # a row
        if blocks > 1:
            a.mov("r4", blocks)
            a.str("r4", _Slots.blocks)
            with a.loop("gt"):
                _compute_block(a, variant, PAIRS)
                a.ldr("r4", _Slots.blocks)
                a.subs("r4", "r4", 1)
                a.str("r4", _Slots.blocks)
        elif blocks:
            _compute_block(a, variant, PAIRS)
        if rest:
            _compute_block(a, variant, rest)
        a.load(r4=_Slots.words, r5=_Slots.rows)
        gap = variant.row_stride * variant.pitch - variant.stride * variant.width
        _move(a, "r4", 4 * gap, "r6")
        a.subs("r5", "r5", 1)
        a.store(r4=_Slots.words, r5=_Slots.rows)
    a.leave()
    names = "rows columns row_stride stride pitch plane width channels".upper().split()
    numbers = dict(zip(names, variant, strict=False)) | {"SHIFT": SHIFT, "SPACING": SPACING}
    constants = ", ".join(f"{name} = {number}" for name, number in numbers.items())
    loops = helper("utvm_twins")
    if variant.is_cut:
        loops = replaced(loops, *_CUT)
    portable = f"enum {{ {constants} }};\n{loops}"
    return a.c_function(variant.function, portable, CONDITION)


def _compute_block(a: Assembler, v: Twins, pairs: int) -> None:
    """A block of outputs in both rows, of all channels."""
    a.load(r0=_Slots.words, r1=_Slots.table, lr=_Slots.first_output)
    a.add("r3", "r0", 4 * v.stride * pairs)
    if pairs == PAIRS:
        a.str("lr", _Slots.output)
    a.add("r2", "lr", pairs * v.channels)
    a.store(r3=_Slots.words, r2=_Slots.first_output)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        sums = [(f"r{4 + 2 * n}", f"r{5 + 2 * n}") for n in range(pairs)]
        free = tuple(f"r{n}" for n in (2, 3, 12, *range(4 + 2 * pairs, 12)))
        # Where a register is left, lr is the output's place in all turns.
        _multiply(a, v, sums, free if pairs < PAIRS else (*free, "lr"))
        _requantize(a, v, sums)


def _multiply(a: Assembler, v: Twins, sums: list[tuple[str, str]], free: tuple[str, ...]) -> None:
    """All products of a channel: r0 are its words, and r1 is its table."""
    for low, high in sums:
        a.ldr(low, at("r1", 4 * v.taps))
        a.ldr(high, at("r1", 4 * v.taps + 4))
    taps, words = free[:_GROUP], free[_GROUP:]
    loaded = 0
    for row in range(v.rows):
        for first in range(0, v.columns, _GROUP):
            count = min(_GROUP, v.columns - first)
            for tap in range(count):
                a.ldr(taps[tap], at("r1", 4 * (row * v.columns + first + tap)))
            for column in range((len(sums) - 1) * v.stride + count):
                seen = [
                    (pair, column - pair * v.stride)
                    for pair in range(len(sums))
                    if 0 <= column - pair * v.stride < count
                ]
                if not seen:
                    continue
                word = words[loaded % len(words)]
                loaded += 1
                a.ldr(word, at("r0", 4 * (row * v.pitch + first + column)))
                for pair, tap in seen:
                    a.smlal(*sums[pair], word, taps[tap])


def _requantize(a: Assembler, v: Twins, sums: list[tuple[str, str]]) -> None:
    """Sums become int8 and are stored; r0 and r1 become those of the next channel.

    Flags: eq after the last one.
    """
    for number, register in enumerate(("r2", "r3", "r12"), v.taps + 2):
        a.ldr(register, at("r1", 4 * number))
    for low, high in sums:
        a.smmla(low, low, "r2", "r3")
        a.smmla(high, high, "r2", "r12")
    if v.is_cut:
        a.ldr("r12", _CutSlots.cut)
    for low, high in sums:
        a.ssat(low, 8, low, f"asr #{SHIFT + SPACING}")
        a.ssat(high, 8, high, f"asr #{SHIFT}")
        if v.is_cut:
            a.qsub8(low, low, "r12")
            a.qsub8(high, high, "r12")
    if len(sums) == PAIRS:
        a.ldr("lr", _Slots.output)
    a.load(r2=_Slots.apart, r3=_Slots.end)
    a.add("r2", "r2", "lr")
    for pair, (low, high) in enumerate(sums):
        a.strb(low, at("lr", pair * v.channels))
        a.strb(high, at("r2", pair * v.channels))
    a.add("lr", "lr", 1)
    if len(sums) == PAIRS:
        a.str("lr", _Slots.output)
    a.add("r0", "r0", 4 * v.plane)
    a.add("r1", "r1", 4 * v.channel_words)
    a.cmp("r1", "r3")


@code_cache
def widen_text(core: str, variant: Twins) -> str:
    """The C text of ``widen_function``, ordered for a core."""
    a = Assembler(core, _WIDEN_PARAMETERS)
    a.enter()
    a.mov("r12", 0xFF00FF00)
    a.mov("r11", 0x00800080)
    # The last pixels go with those of a turn: then no branch depends on them.
    turns = max(variant.seen // _LOOPED - 1, 0)
    looped = _LOOPED * turns
    with a.loop("gt"):  # four more channels
        if turns:
            a.mov("r10", turns)
            with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
                _widen(a, variant, _LOOPED)
                _move_places(a, _LOOPED * variant.channels, 4 * _LOOPED)
                a.subs("r10", "r10", 1)
        with a.scheduled():
            _widen(a, variant, variant.seen - looped)
            _move_places(a, 4 - looped * variant.channels, 4 * (4 * variant.plane - looped))
            a.subs("r3", "r3", 1)
    a.leave()
    numbers = f"STEP = {variant.channels}, PIXELS = {variant.seen}, PLANE = {variant.plane}"
    portable = f"enum {{ {numbers} }};\n{helper('utvm_widen_twins')}"
    return a.c_function(variant.widen_function, portable, CONDITION)


def _move_places(a: Assembler, read: int, written: int) -> None:
    """Move the places that are read and written by some bytes."""
    for register, count in (("r0", read), ("r1", read), ("r2", written)):
        _move(a, register, count, "r4")


def _move(a: Assembler, register: str, count: int, temporary: str) -> None:
    """Add a number to a register; it may be negative, or large."""
    step: int | str = abs(count)
    if abs(count) > _REACH:
        a.constant(temporary, abs(count))
        step = temporary
    (a.add if count >= 0 else a.sub)(register, register, step)


def _widen(a: Assembler, variant: Twins, pixels: int) -> None:
    """Store four channels of the pixels from r0 and r1 on: a word of each plane."""
    free = ("r4", "r5", "r6", "r7", "r8", "r9", "lr")
    for pixel in range(pixels):
        upper, lower, third, even, odd = (free[(5 * pixel + n) % len(free)] for n in range(5))
        a.ldr(upper, at("r0", pixel * variant.channels))
        a.ldr(lower, at("r1", pixel * variant.channels))
        # Two channels of a pixel in each register.
        a.and_(third, "r12", lower, "lsl #8")
        a.and_(lower, lower, "r12")
        a.sxtab16(even, "r11", upper)
        a.sxtab16(upper, "r11", upper, "ror #8")
        # A channel of both pixels.
        a.pkhbt(odd, even, third, "lsl #16")
        a.pkhtb(third, third, even, "asr #16")
        a.pkhbt(even, upper, lower, "lsl #16")
        a.pkhtb(lower, lower, upper, "asr #16")
        for channel, one in enumerate((odd, even, third, lower)):
            a.str(one, at("r2", 4 * (channel * variant.plane + pixel)))
