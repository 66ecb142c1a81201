"""Values of int8 and of int16 in the tile of convolutions: their scaling, limits and places.

The product is the same for both: it multiplies words of two values of int16. They differ in how
values are packed, and in what happens to a sum. Tables and registers are those of ``tile.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame, words
from utvm_deploy.kernels.isa.mnemonics import Memory, Slot, at
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks, tile
from utvm_deploy.kernels.native.dsp.assembly.tile import CHANNELS, PIXELS, SUMS, TileSlots
from utvm_deploy.kernels.native.micro_kernel import packed_halves

#: The parameter of a product with packed weights: a line for those of two channels, as int8.
UNPACKED = "unpacked"
#: The most bytes of stack slots that a routine with the tile has.
_ROUTINE_BYTES = 80
#: The sum of this many products of int16 and int8 fits 32 bits.
_MOST_PRODUCTS = 508


@dataclass(frozen=True)
class Values:
    """Values of int8: of the image, and of the output."""

    #: Ends the names of C functions and kernels.
    label: ClassVar[str] = ""
    dtype: ClassVar[str] = "int8"
    size: ClassVar[int] = 1
    #: The values of a pixel are filled up to a multiple of this.
    unit: ClassVar[int] = 4
    #: Of the table of scaling: bias, multiplier, offset, shift.
    rows: ClassVar[int] = 4
    #: Whether a whole depth may be written out without a loop.
    can_be_whole: ClassVar[bool] = True
    #: Whether the scaling is that of ``single_rounding.py``.
    once: bool = field(default=False, kw_only=True)
    #: Whether weights are int4, in the form of ``halves.py``.
    halves: bool = field(default=False, kw_only=True)

    @property
    def suffix(self) -> str:
        """Ends the names of C functions."""
        return f"{self.label}{'_once' if self.once else ''}{'_int4' if self.halves else ''}"

    @property
    def scaling_words(self) -> int:
        """Words of the table of scaling for two channels."""
        return self.rows * CHANNELS

    def frame(self, slots: type[StackFrame]) -> type[StackFrame]:
        """The stack frame of a routine with these slots."""
        assert slots.size_bytes <= _ROUTINE_BYTES
        return slots

    def texts(self) -> tuple[str, ...]:
        """The C texts that the product in C needs."""
        scale = shared_blocks.helper("utvm_scale_once") if self.once else shared_text("utvm_scale")
        return (scale, shared_blocks.helper("utvm_half")) if self.halves else (scale,)

    def portable(self, name: str) -> str:
        """The C of the product ``c/NAME.h`` for these values."""
        text = shared_blocks.helper(name)
        if self.halves:
            text = replaced(
                text,
                ("*w = weights + (o / 2) * 2 * depth", "*w = weights + (o / 2) * depth", 1),
                ("w[4 * k]", "utvm_half(w, k, 0)", 1),
                ("w[4 * k + 2]", "utvm_half(w, k, 2)", 1),
            )
            text = f"(void){UNPACKED};\n{text}"
        return replaced(text, ("utvm_scale(", "utvm_scale_once(", 1)) if self.once else text

    def pack(self, weights: Array, rows: Array, depth: int, groups: int = 1) -> tuple[Array, Array]:
        """The tables of weights and scaling. Zeros fill up the outputs of each group to pairs.

        ``weights`` are [outputs of all groups, products], filled up to the depth, and ``rows``
        [numbers that scale a channel, outputs].
        """
        outputs, products = weights.shape
        missing = -(outputs // groups) % CHANNELS
        by_group = weights.reshape(groups, -1, products)
        filled = np.pad(by_group, ((0, 0), (0, missing), (0, depth - products)))
        by_word = self._by_word(filled.reshape(-1, CHANNELS, depth))
        scaling = np.pad(rows.reshape(len(rows), groups, -1), ((0, 0), (0, 0), (0, missing)))
        by_pair = scaling.reshape(len(rows), -1, CHANNELS).swapaxes(0, 1)
        if self.halves:
            return packed_halves(by_word), by_pair.reshape(-1)
        slack = np.zeros(tile.SLACK_BYTES, dtype=np.int8)
        return np.concatenate([by_word.reshape(-1), slack]), by_pair.reshape(-1)

    def _by_word(self, weights: Array) -> Array:
        """[pair, channel of it, value] -> weights in the order of the table."""
        pairs, channels, depth = weights.shape
        # pair, channel, quad, lane, phase -> pair, quad, phase, lane, channel
        quads = weights.reshape(pairs, channels, depth // 4, 2, 2)
        ordered: Array = quads.transpose(0, 2, 4, 3, 1)
        return ordered

    def load_limits(self, a: Assembler) -> None:
        """Put the limits at r3 into their slots. Overwrites r8, r9, r10 and r12."""
        shared_blocks.load_limits(a, "r3", TileSlots.low, TileSlots.clamps)

    def load_pitch(self, a: Assembler, outputs: str) -> str:
        """The register with the bytes from pixel to pixel; ``outputs`` has their number."""
        return outputs

    def begin_channels(self, a: Assembler, step: int) -> None:
        """Fill further slots for two channels, after the slot ``last``."""

    def start(self, a: Assembler, pixels: int) -> None:
        """Set the sums to the bias, and load the first weights."""
        (low, high), *others = SUMS[:pixels]
        a.ldr("r12", TileSlots.scaling)
        a.ldrd(low, high, at("r12"))
        a.ldr("r1", TileSlots.weights)
        for pair in others:
            a.mov(pair[0], low)
            a.mov(pair[1], high)
        tile.load_weights(a)

    def next_segment(self, a: Assembler, pixels: int, step: int, again: Label) -> None:
        """After the inner loop, which is at ``again``: continue with the rest of the depth."""

    def finish(self, a: Assembler, pixels: int) -> None:
        """Requantize; then r10 is the output, r11 its pitch, and the flags say ``ne`` if special.

        The first sum of each pixel then holds the outputs of both channels.
        """
        sums = SUMS[:pixels]
        a.ldr("r10", TileSlots.scaling)
        self.scale(a, sums)
        self.join(a, sums)
        a.load(r2=TileSlots.special, r10=TileSlots.output, r11=TileSlots.output_pitch)
        a.cmp("r2", 0)

    def scale(self, a: Assembler, sums: Sequence[tuple[str, str]]) -> None:
        """Requantize the sums in place, by the table at r10."""
        for channel, (multiplier, offset) in enumerate((("r2", "r3"), ("lr", "r1"))):
            for row, target in enumerate((multiplier, offset), 1):
                a.ldr(target, at("r10", 4 * (CHANNELS * row + channel)))
            if self.once:
                shift = ("r12", "r11")[channel]
                a.ldr(shift, at("r10", 4 * (CHANNELS * 3 + channel)))
                shared_blocks.scale_once(
                    a, [pair[channel] for pair in sums], multiplier, offset, shift
                )
                continue
            self.load_shift(a, offset, channel)
            shared_blocks.scale(
                a, [pair[channel] for pair in sums], multiplier, offset, "r12", "r11"
            )

    def load_shift(self, a: Assembler, offset: str, channel: int) -> None:
        """Put a channel's shift into r12; ``offset`` has its offset, r10 points at the table."""
        a.ldr("r12", at("r10", 4 * (CHANNELS * 3 + channel)))

    def join(self, a: Assembler, sums: Sequence[tuple[str, str]]) -> None:
        """Put both outputs of a pixel into its first register."""
        for low, high in sums:
            a.bfi(low, high, 8, 8)

    def clamp(self, a: Assembler, pixels: int) -> None:
        """Limit both channels of each pixel, if the limits are not those of the type."""
        a.ldr("r2", TileSlots.clamps)
        a.cmp("r2", 0)
        with a.unless("eq"), a.scheduled():
            a.load(r10=TileSlots.low, r11=TileSlots.high)
            shared_blocks.clamp(
                a, [low for low, _ in SUMS[:pixels]], "r10", "r11", "r12", 8 * self.size
            )

    def store(self, a: Assembler, register: str, place: Memory) -> None:
        """Store both outputs of a pixel."""
        a.strh(register, place)

    def store_first(self, a: Assembler, register: str, place: Memory) -> None:
        """Store the lower output in a register."""
        a.strb(register, place)


@dataclass(frozen=True)
class UnshiftedValues(Values):
    """Values of int8 whose table of scaling has no shifts, for fewer bytes of flash.

    An offset is the zero point times 2**shift, and half of 2**shift. So its lowest bit gives
    the shift.
    """

    label: ClassVar[str] = "_unshifted"
    rows: ClassVar[int] = 3  # bias, multiplier, offset
    can_be_whole: ClassVar[bool] = False

    def portable(self, name: str) -> str:
        shift = "int32_t shift = 1;\n        "
        shift += "while (!((uint32_t)s[4] >> (shift - 1) & 1)) {\n            shift++;\n        }\n"
        value = "int32_t value = utvm_scale((int32_t)sum, s[2], s[4], "
        return replaced(
            super().portable(name),
            ("(o / 2) * 8", f"(o / 2) * {self.scaling_words}", 1),
            (f"{value}s[6])", f"{shift}        {value}shift)", 1),
        )

    def load_shift(self, a: Assembler, offset: str, channel: int) -> None:
        a.rsb("r12", offset, 0)
        a.and_("r12", "r12", offset)
        a.clz("r12", "r12")
        a.rsb("r12", "r12", 32)


@dataclass(frozen=True)
class PairedValues(Values):
    """Values of int8, of few channels, in the order of their words: k = 2 w + l (word, lane)."""

    unit: ClassVar[int] = 2
    channels: int = 3

    def _by_word(self, weights: Array) -> Array:
        return _in_order(weights)


@dataclass(frozen=True)
class WideValues(Values):
    """Values of int16, which are multiplied as they are. Sums fit 32 bits, scaled ones, too.

    The rows of scaling are bias, multiplier, rounding, shift: see ``is_short`` of the routines.
    """

    label: ClassVar[str] = "_16x8"
    dtype: ClassVar[str] = "int16"
    size: ClassVar[int] = 2
    unit: ClassVar[int] = 2
    #: The C of a sum ``sum`` that is scaled by a table ``s``.
    scaled: ClassVar[str] = "((int32_t)(((sum + s[0]) * s[2]) >> 32) + s[4]) >> s[6]"

    def texts(self) -> tuple[str, ...]:
        return ()

    def portable(self, name: str) -> str:
        return replaced(
            shared_blocks.helper(name),
            ("uint32_t sum = (uint32_t)s[0];", "int64_t sum = 0;", 1),
            ("sum += (uint32_t)(", "sum += (int64_t)(", 1),
            ("utvm_scale((int32_t)sum, s[2], s[4], s[6])", self.scaled, 1),
            ("(int8_t)utvm_clamp", "(int16_t)utvm_clamp", 1),
        )

    def _by_word(self, weights: Array) -> Array:
        return _in_order(weights)

    def load_limits(self, a: Assembler) -> None:
        a.ldrd("r8", "r9", at("r3"))
        a.mov("r10", 32767)
        a.mvn("r12", "r10")
        a.cmp("r8", "r12")
        with a.when("eq"):
            a.cmp("r9", "r10")
        with a.when("eq") as otherwise:
            a.mov("r12", 0)
            otherwise()
            a.mov("r12", 1)
        a.pkhbt("r8", "r8", "r8", "lsl #16")
        a.pkhbt("r9", "r9", "r9", "lsl #16")
        a.strd("r8", "r9", TileSlots.low)
        a.str("r12", TileSlots.clamps)

    def load_pitch(self, a: Assembler, outputs: str) -> str:
        a.lsl("r8", outputs, 1)
        return "r8"

    def scale(self, a: Assembler, sums: Sequence[tuple[str, str]]) -> None:
        for channel, (multiplier, offset) in enumerate((("r2", "r3"), ("lr", "r1"))):
            for row, target in enumerate((multiplier, offset, "r12"), 1):
                a.ldr(target, at("r10", 4 * (CHANNELS * row + channel)))
            for pair in sums:
                one = pair[channel]
                a.smmla(one, one, multiplier, offset)
                a.asr(one, one, "r12")
                a.ssat(one, 16, one)

    def join(self, a: Assembler, sums: Sequence[tuple[str, str]]) -> None:
        for low, high in sums:
            a.pkhbt(low, low, high, "lsl #16")

    def store(self, a: Assembler, register: str, place: Memory) -> None:
        a.str(register, place)

    def store_first(self, a: Assembler, register: str, place: Memory) -> None:
        a.strh(register, place)


class _RoutineSlots(StackFrame, size_bytes=_ROUTINE_BYTES):
    """The slots of any routine with the tile."""


class _LongSlots(_RoutineSlots):
    """What the routine keeps in addition, if sums need 64 bits."""

    final: Slot  # where r1 points when the last step of two channels begins
    first: Slot  # where it points when the last step of their first segment begins
    scaled: Slot = words(2 * PIXELS * CHANNELS)  # of each pixel and channel: low, high word


@dataclass(frozen=True)
class LongValues(WideValues):
    """Values of int16 whose sums need 64 bits.

    The depth is done in segments whose sums fit 32 bits. The sum of a segment times the multiplier
    is added to 64 bits, which begin at the bias times the multiplier, plus the rounding. The rows
    of scaling are the low words of these, multiplier, their high words, shift - 32.
    """

    label: ClassVar[str] = "_16x8_long"
    can_be_whole: ClassVar[bool] = False
    scaled: ClassVar[str] = (
        "(int32_t)(((int64_t)((uint64_t)(uint32_t)s[4] << 32 | (uint32_t)s[0]) + sum * s[2]) >> 32)"
        " >> s[6]"
    )

    def frame(self, slots: type[StackFrame]) -> type[StackFrame]:
        super().frame(slots)
        return _LongSlots

    @staticmethod
    def _segment_bytes(step: int) -> int:
        """Bytes of weights of a segment."""
        return _MOST_PRODUCTS // step * step * CHANNELS

    def begin_channels(self, a: Assembler, step: int) -> None:
        a.load(r2=TileSlots.last, r3=TileSlots.weights)
        a.add("r3", "r3", self._segment_bytes(step) - CHANNELS * step)
        a.cmp("r3", "r2")
        with a.when("gt"):
            a.mov("r3", "r2")
        a.store(r2=_LongSlots.final, r3=_LongSlots.first)

    def start(self, a: Assembler, pixels: int) -> None:
        a.ldr("r12", TileSlots.scaling)
        a.ldrd("r4", "r5", at("r12"))
        a.ldrd("r6", "r7", at("r12", 16))
        for pixel in range(pixels):
            a.strd("r4", "r6", _scaled(pixel, 0))
            a.strd("r5", "r7", _scaled(pixel, 1))
        a.ldr("r12", _LongSlots.first)
        a.ldr("r1", TileSlots.weights)
        for pair in SUMS[:pixels]:
            for one in pair:
                a.mov(one, 0)
        a.str("r12", TileSlots.last)
        tile.load_weights(a)

    def next_segment(self, a: Assembler, pixels: int, step: int, again: Label) -> None:
        with a.scheduled():
            a.ldr("r12", TileSlots.scaling)
            a.ldrd("r2", "r3", at("r12", 8))
            for pixel, pair in enumerate(SUMS[:pixels]):
                for channel, (one, multiplier) in enumerate(zip(pair, ("r2", "r3"), strict=True)):
                    a.ldrd("r12", "lr", _scaled(pixel, channel))
                    a.smlal("r12", "lr", one, multiplier)
                    a.mov(one, 0)
                    a.strd("r12", "lr", _scaled(pixel, channel))
            tile.load_weights(a)
            a.load(r12=TileSlots.last, lr=_LongSlots.final)
            a.cmp("r12", "lr")
        with a.unless("eq"):
            a.add("r12", "r12", self._segment_bytes(step))
            a.cmp("r12", "lr")
            with a.when("gt"):
                a.mov("r12", "lr")
            a.str("r12", TileSlots.last)
            a.b(again)

    def scale(self, a: Assembler, sums: Sequence[tuple[str, str]]) -> None:
        a.ldrd("r2", "r3", at("r10", 24))
        for pixel, pair in enumerate(sums):
            for channel, (one, shift) in enumerate(zip(pair, ("r2", "r3"), strict=True)):
                a.ldr(one, _scaled(pixel, channel).word(1))
                a.asr(one, one, shift)
                a.ssat(one, 16, one)


def _in_order(weights: Array) -> Array:
    """[pair, channel of it, value] -> [pair, word, lane, channel]."""
    pairs, channels, depth = weights.shape
    ordered: Array = weights.reshape(pairs, channels, depth // 2, 2).transpose(0, 2, 3, 1)
    return ordered


def _scaled(pixel: int, channel: int) -> Slot:
    """The 64 bits of a pixel and a channel."""
    return _LongSlots.scaled.word(2 * (CHANNELS * pixel + channel))


INT8, INT16, INT16_LONG = Values(), WideValues(), LongValues()
INT8_UNSHIFTED = UnshiftedValues()
