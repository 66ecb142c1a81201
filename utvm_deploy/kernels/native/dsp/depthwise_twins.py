"""DEPTHWISE_CONV_2D over twins: two rows of outputs at a time, whose pixels share words.

The output is done in strips of rows, and in blocks of channels. Of a strip, the upper half of the
rows and the lower half are computed together: a word of scratch has a pixel for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.lag import Lag, least_lag
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.assembly.depthwise_twins_code import (
    PAIRS,
    Twins,
    pack_twins,
    twins_scaling,
    twins_text,
    unpack_text,
    widen_text,
)
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import CACHE_LINE_BYTES, helper
from utvm_deploy.kernels.native.dsp.depthwise_planes import DspWidened
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import equal_blocks, windows_call
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Channels of a block, best first: a line of a cache, or parts of one.
_BLOCKS = (32, 24, 16, 8)
_LEAST_CHANNELS = 4
#: Strips of the output.
_STRIPS = (1, 2, 3, 4, 6, 8, 12)

# Cycles of the estimate.
_INSTRUCTION = 0.56  # two are issued in a cycle at best
_BLOCK, _ROW, _STRIP = 25.0, 25.0, 60.0  # of outputs, a pair of rows, a strip of some channels
_WORDS, _WORD_ROW, _FOUND_ROW = 8.2, 5.0, 60.0  # twins of four channels
_KEPT_WORD, _EDGE, _UNPACKED_WORD = 4.0, 2.5, 2.5
_MISS, _READ_AGAIN = 21, 1.2


@dataclass(frozen=True)
class TwinsChoices(Choices):
    """Channels of a block, and pairs of rows of a strip."""

    method = "twins"
    channels: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class DspTwins(DspWidened):
    """How a depthwise convolution over twins is computed."""

    block: int  # channels at a time
    pairs: int  # of rows, of a strip
    is_cut: bool = False  # outputs have a limit below 127

    # It rounds once in any case.
    rounded_once = None

    @property
    def name(self) -> str:
        cut = "_cut" if self.is_cut else ""
        return f"depthwise_twins_{self.window.label}_{self.channels}{cut}_dsp"

    @property
    def choices(self) -> TwinsChoices:
        """What chooses this kernel."""
        return TwinsChoices(self.block, self.pairs)

    @property
    def strips(self) -> list[tuple[int, int, int]]:
        """Strips of equal rows: the first row of the output, how many strips, rows of each."""
        return equal_blocks(self.window.output_height, 2 * self.pairs)

    def word_rows(self, rows: int) -> int:
        """Rows of words under the windows of a strip."""
        return (-(-rows // 2) - 1) * self.window.strides[0] + self.window.kernel[0]

    @cached_property
    def variant(self) -> Twins:
        """The variant of the inner block."""
        w = self.window
        pitch = w.padded_width
        plane = self.word_rows(self.strips[0][2]) * pitch
        return Twins(
            *(*w.kernel, *w.strides, pitch, plane, w.output_width, self.channels, self.columns),
            self.is_cut,
        )

    @property
    def kept(self) -> int:
        """Rows of the image that a strip sees, and that the output may have overwritten."""
        return self.window.top if self.window.strides[0] == 1 else 0

    @property
    def fits(self) -> bool:
        """Whether channels come in fours at least, and all offsets of addresses are small.

        Each window has to begin before the end of the image: the border takes the place of a kept
        row, which is read with it otherwise. Rows that are kept belong to the strip before.
        """
        w = self.window
        least = min(count for _, _, count in equal_blocks(self.channels, self.block))
        is_kept = min(2 * self.pairs, w.output_height) >= self.kept
        is_kept = is_kept and (w.output_height - 1) * w.strides[0] - w.top < w.height
        return least >= _LEAST_CHANNELS and is_kept and self.variant.fits

    @property
    def lag(self) -> Lag | None:
        w = self.window
        if w.batch != 1:
            return None
        rows = np.array([first for first, _ in self._each_strip])
        reads = np.maximum(rows * w.strides[0] - w.top + self.kept, 0) * w.width * self.channels
        ends = np.array([first + count for first, count in self._each_strip])
        least = least_lag(reads, ends * w.output_width * self.channels)
        is_whole = self.block >= self.channels
        return Lag(least) if is_whole else Lag(least, unit_bytes=self.channels)

    @property
    def _each_strip(self) -> list[tuple[int, int]]:
        """The first row of each strip, and its rows."""
        return [(first + n * rows, rows) for first, some, rows in self.strips for n in range(some)]

    @property
    def estimated_cycles(self) -> float:
        """About what a call takes, in cycles."""
        w, variant = self.window, self.variant
        blocks = equal_blocks(self.channels, self.block)
        count = sum(number for _, number, _ in blocks)
        quads = sum(number * -(-size // 4) for _, number, size in blocks)
        full, rest = divmod(w.output_width, PAIRS)
        row = count * (_ROW + (full + (rest > 0)) * _BLOCK)
        instructions = full * variant.instructions(PAIRS) + variant.instructions(rest)
        row += self.channels * instructions * _INSTRUCTION
        cost, words = 0.0, 0
        for _, rows in self._each_strip:
            cost += -(-rows // 2) * row + count * _STRIP
            words += self.word_rows(rows)
        strips = len(self._each_strip)
        cost += words * (count * _FOUND_ROW + quads * (_WORD_ROW + _WORDS * self.columns))
        cost += (strips - 1) * self.kept * quads * self.columns * _KEPT_WORD
        cost += self.block * variant.plane * (1 - self.columns / variant.pitch) * _EDGE
        cost += self.channels * variant.channel_words * _UNPACKED_WORD
        # A line of the cache has several blocks of channels, or several pixels.
        visits = max(1.0, min(self.channels, CACHE_LINE_BYTES) / self.block) * _READ_AGAIN
        lines = w.height * w.width * self.channels / CACHE_LINE_BYTES * visits
        lines += self.channels * variant.packed_bytes / CACHE_LINE_BYTES
        return w.batch * (cost + lines * _MISS)

    @property
    def geometry(self) -> Array:
        """``struct utvm_twins_window``; then, with ``is_cut``, 127 less the limit."""
        w, variant = self.window, self.variant
        shape = w.height, w.width * self.channels, self.channels, self.columns
        rows = variant.plane // variant.pitch
        cut = (0,) if self.is_cut else ()
        return np.array([*shape, w.left, variant.pitch, rows, self.kept, *cut], dtype=np.int32)

    @property
    def why(self) -> str:
        return (
            f"DSP assembly, 2 rows of 3 outputs of a channel by one multiplication, "
            f"strips of {2 * self.pairs} rows, {min(self.block, self.channels)} channels"
        )

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, self._table, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return self._unpacked, self._words, self._kept

    def texts(self, core: str) -> tuple[str, ...]:
        v = self.variant
        names = ("utvm_scale_once", "utvm_twins_rows", "utvm_twins_kept")[: 3 if self.kept else 2]
        return *map(helper, names), unpack_text(v), widen_text(core, v), twins_text(core, v)

    def drive(self, c: Driver) -> None:
        c.lines.append("  const int8_t *upper, *lower;")
        for first, blocks, count in equal_blocks(self.channels, self.block):
            with c.loop("batch", self.window.batch) as n, c.loop("block", blocks) as block:
                for start, strips, rows in self.strips:
                    with c.loop("strip", strips) as strip:
                        self._drive_strip(
                            c, (n, strip * rows + start), rows, (block * count + first, count)
                        )

    def _drive_strip(
        self, c: Driver, row: tuple[Index, Index], rows: int, channels: tuple[Index, int]
    ) -> None:
        """Some rows from a row (image, row) of the output on, of channels (first, how many)."""
        w, variant, (n, y), (channel, count) = self.window, self.variant, row, channels
        pairs = -(-rows // 2)
        # An odd number of rows: one of them is both the last upper and the first lower one.
        apart = rows - pairs
        words, table, geometry = self._words, self._unpacked, self._geometry.at()
        packed, first_strip = self._table.at(channel * variant.packed_bytes), y.is_zero(count)
        image, kept = self._image.at(n, 0, 0, channel), self._kept.at(0, 0, channel)
        c.call(variant.unpack_function, packed, table.at(), first_strip)
        is_first = (n + channel + y).is_zero(count)
        c.call("utvm_fill_beside", words.at(), "border", is_first, geometry)
        top = y * w.strides[0] + -w.top
        with c.loop("word_row", self.word_rows(rows)) as r:
            for name, below in (("&upper", r), ("&lower", r + apart * w.strides[0])):
                place = name, image, kept, top + below, below
                c.call("utvm_twins_row", *place, count, "border", geometry)
            for first, number in ((0, count // 4), (count - 4, 1 if count % 4 else 0)):
                # The last four channels once more, if their number is not a multiple of four.
                if number:
                    where = words.at(first, r * variant.pitch + w.left)
                    pixels = f"upper + {first}", f"lower + {first}"
                    c.call(variant.widen_function, *pixels, where, number)
        if self.kept:
            c.call("utvm_keep_rows", image, kept, top + rows * w.strides[0], count, geometry)
        cut = (self._geometry.at(self.geometry.size - 1),) if self.is_cut else ()
        c.call(
            variant.function,
            *(words.at(), table.at(), self._output.at(n, y, 0, channel)),
            *(apart * w.output_width * self.channels, pairs, table.at(count), *cut),
        )

    @property
    def _table(self) -> Operand:
        return Operand("table", (self.channels * self.variant.packed_bytes,), "int8")

    @property
    def _unpacked(self) -> Operand:
        """The table of a block."""
        count = min(self.block, self.channels)
        return Operand("unpacked", (count, self.variant.channel_words), "int32")

    @property
    def _kept(self) -> Operand:
        """Rows for the next strip, or a row of the border."""
        return Operand("kept", (max(self.kept, 1), self.window.width, self.channels), "int8")

    @property
    def _words(self) -> Operand:
        """The rows of a strip, of the channels of a block."""
        return Operand("words", (min(self.block, self.channels), self.variant.plane), "int32")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.channels), "int8")

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        weights = tables.weights.reshape(self.channels, -1)
        rows = twins_scaling(scaling, tables.weights, tables.zero_point, tables.limits)
        assert rows is not None  # asked before
        table = ConstantArgument("weights", pack_twins(weights, scaling, rows))
        geometry = self.geometry
        if self.is_cut:
            geometry[-1] = 127 - tables.limits[1]
        found = windows_call(call, self, geometry, (table,), tables.border)
        # Levels for little flash take packed planes instead: all layers share their code.
        return replace(found, heeds_compact=COMPACT_LITTLE)


def twins_kernels(
    window: Window, channels: int, choices: TwinsChoices, *, is_cut: bool = False
) -> Iterator[DspTwins]:
    """The chosen kernel, or all kernels if the choices are open; none for windows too large.

    ``is_cut``: outputs have a limit below 127.
    """
    if window.dilations != (1, 1) or window.output_height < 2:
        return
    most = -(-window.output_height // 2)
    for size in (choices.channels,) if choices.channels else _BLOCKS:
        block = min(size, channels, _BLOCKS[0])
        counts = (choices.rows,) if choices.rows else [-(-most // some) for some in _STRIPS]
        for pairs in dict.fromkeys(min(count, most) for count in counts):
            kernel = DspTwins(window, channels, block, pairs, is_cut)
            if kernel.fits and (choices.channels or block == min(size, channels)):
                yield kernel
