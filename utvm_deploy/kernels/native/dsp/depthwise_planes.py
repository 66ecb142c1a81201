"""DEPTHWISE_CONV_2D over planes: rows of the image as int16, channel by channel, in scratch.

Channels are done in blocks, so that their planes take little scratch. Each plane is a ring buffer
of rows: when its end is reached, the rows that the next window sees move to the front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.lag import Lag, least_lag
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.assembly import depthwise_planes_table as table
from utvm_deploy.kernels.native.dsp.assembly.depthwise_planes_code import planes_text
from utvm_deploy.kernels.native.dsp.assembly.planes_ring import QUAD, ring_text
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import CACHE_LINE_BYTES, helper
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import equal_blocks, windows_call
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.window_rewrites import without_dilation
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Channels of a block, best first: a line of a cache, or parts of one.
BLOCKS = (32, 24, 16, 8, 4)
#: Taps at a time of a window that is one long row.
PARTS = (2, 4, 6)
#: Output rows until the rows of a ring move.
PERIODS = (4, 3, 2, 1)
_LIMITS = Operand("limits", (2,), "int32")

# Cycles of the estimate.
_CALL = 137.0  # of the inner block, for a block of channels of an output row
_PRODUCT, _BLOCK, _OUTPUT, _CHANNEL = 1.0, 13.8, 2.6, 20.8
_PAIR, _QUAD_ROW = 11.6, 5.7  # two pixels, and a row, of four channels, are widened
_MOVED_WORD, _MOVE, _FILLED_WORD = 1.4, 7.9, 0.8
_MISS = 21
# A cache line of the table: in each row of the output, and once more in the first of several rows
# or in the only row.
_LINE, _FIRST_LINE, _ONLY_LINE = 2.2, 20.0, 33.0


@dataclass(frozen=True)
class PlanesChoices(Choices):
    """Channels of a block, outputs and rows at a time, and taps at a time of a long row."""

    method = "planes"
    channels: int | None = None
    outputs: int | None = None
    period: int | None = None
    part: int = 0


@dataclass(frozen=True)
class DspWidened:
    """The shape of a depthwise convolution that widens pixels in scratch, and what it reads."""

    window: Window
    channels: int

    @property
    def columns(self) -> int:
        """Columns of the image that windows see."""
        return min(self.window.width, self.window.padded_width - self.window.left)

    @property
    def geometry(self) -> Array:
        """The struct that the C functions take."""
        raise NotImplementedError

    @property
    def _image(self) -> Operand:
        return Operand("image", self.window.input_shape(self.channels), "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.geometry.size,), "int32")


@dataclass(frozen=True)
class DspPlanes(DspWidened):
    """How a depthwise convolution over planes is computed."""

    multiplier: int  # outputs of each channel
    block: int  # channels at a time
    period: int  # output rows until the rows of a ring move
    outputs: int  # at a time
    part: int = 0  # taps at a time of a window that is one long row; 0: all
    is_compact: bool = False  # the table is packed in flash, and unpacked block by block
    once: bool = False  # requantized with one rounding
    halves: bool = False  # the packed table has weights of int4

    @property
    def name(self) -> str:
        times = f"x{self.multiplier}" if self.multiplier > 1 else ""
        label = f"{self.window.label}_{self.channels}{times}"
        return f"depthwise_{label}_dsp{'_int4' if self.halves else ''}"

    @property
    def choices(self) -> PlanesChoices:
        """What chooses this kernel."""
        return PlanesChoices(self.block, self.outputs, self.period, self.part)

    @property
    def rounded_once(self) -> DspPlanes | None:
        """The kernel for tables of ``single_rounding.py``; None if its table is packed."""
        return None if self.is_compact else replace(self, once=True)

    @cached_property
    def variant(self) -> table.Variant:
        """The variant of the inner block; each part of a long row is a row of its window."""
        w = self.window
        kernel = (-(-w.kernel[1] // self.part), self.part) if self.part else w.kernel
        shape = w.strides[1], w.left % 2, self.outputs, w.output_width, self.multiplier
        return table.variant_of(kernel, *shape)._replace(once=self.once, halves=self.halves)

    @property
    def ring(self) -> int:
        """Rows of a plane."""
        w = self.window
        return w.strides[0] * (self.period - 1) + w.kernel[0]

    @property
    def kept_rows(self) -> int:
        """Rows of a window that the window of the next output row sees, too."""
        return max(self.window.kernel[0] - self.window.strides[0], 0)

    @property
    def pitch(self) -> int:
        """Columns of a plane."""
        w, variant = self.window, self.variant
        last = (w.output_width - 1) // self.outputs * self.outputs  # first output of the last block
        if variant.tail != table.PARTIAL:
            last = w.output_width - self.outputs
        reach = last * w.strides[1] + variant.reach + (variant.rows - 1) * self.part
        return max(reach, w.left + variant.odd + -(-self.columns // 2) * 2)

    @property
    def lag(self) -> Lag | None:
        w, channels = self.window, self.channels
        is_whole = self.block >= channels
        if w.batch != 1 or not (is_whole or self.multiplier == 1):
            return None
        rows = np.arange(w.output_height)
        reads = np.maximum(rows * w.strides[0] - w.top + self.kept_rows, 0) * w.width * channels
        reads[0] = 0
        writes = (rows + 1) * w.output_width * channels * self.multiplier
        least = least_lag(reads, writes)
        return Lag(least) if is_whole else Lag(least, unit_bytes=channels)

    @property
    def estimated_cycles(self) -> float:
        """About what a call takes, in cycles."""
        w, variant, made = self.window, self.variant, self.channels * self.multiplier
        block = (
            _PRODUCT * variant.rows * table.products_of_block(variant)
            + _OUTPUT * variant.outputs
            + _BLOCK
        )
        row = -(-w.output_width // variant.outputs) * block
        row += 0 if variant.tail == table.SINGLE else _CHANNEL
        lines = made * 4 * variant.channel_words / CACHE_LINE_BYTES
        calls = -(-self.channels // self.block) * _CALL
        first = _FIRST_LINE if w.output_height > 1 else _ONLY_LINE
        cost = w.output_height * (made * row + lines * _LINE + calls) + lines * first
        return w.batch * (cost + self._filling_cycles)

    @property
    def _filling_cycles(self) -> float:
        """About what it takes to fill the planes with all rows of an image."""
        w, kept = self.window, self.kept_rows
        blocks = equal_blocks(self.channels, self.block)
        # Fewer than four channels are widened byte by byte.
        quads = sum(
            number * (-(-count // QUAD) if count >= QUAD else count) for _, number, count in blocks
        )
        rows = min(w.height, w.padded_height - w.top) if kept else w.output_height * w.kernel[0]
        cost = rows * quads * (-(-self.columns // 2) * _PAIR + _QUAD_ROW)
        if kept:
            moves = (w.output_height - 1) // self.period
            cost += moves * self.channels * (_MOVE + _MOVED_WORD * kept * self.pitch / 2)
        count = -(-self.channels // self.block)
        cost += rows * count * w.width * min(1.0, self.channels / CACHE_LINE_BYTES) * _MISS
        return cost + _FILLED_WORD * self.channels * self.ring * self.pitch / 2

    @property
    def geometry(self) -> Array:
        """``struct utvm_planes_window``."""
        w = self.window
        values = (
            *(w.height, w.width, self.channels, self.columns, w.kernel[0], w.strides[0], w.top),
            *(w.left + self.variant.odd, self.pitch, self.ring, self.period),
        )
        return np.array(values, dtype=np.int32)

    @property
    def why(self) -> str:
        return (
            f"DSP assembly, {self.outputs} outputs of a channel in registers, "
            f"rows of {min(self.block, self.channels)} channels widened"
        )

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, self._table, _LIMITS, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._unpacked, self._planes) if self.is_compact else (self._planes,)

    def texts(self, core: str) -> tuple[str, ...]:
        unpack = (table.unpack_text(self.variant),) if self.is_compact else ()
        scale = helper("utvm_scale_once" if self.once else "utvm_scale_doubled")
        return scale, planes_text(core, self.variant), ring_text(core), *unpack

    def drive(self, c: Driver) -> None:
        w = self.window
        for first, blocks, count in equal_blocks(self.channels, self.block):
            with (
                c.loop("batch", w.batch) as n,
                c.loop("block", blocks) as block,
                c.loop("row", w.output_height) as y,
            ):
                self._drive_row(c, (n, y), block * count + first, count)

    def _drive_row(self, c: Driver, row: tuple[Index, Index], channel: Index, count: int) -> None:
        """A row (image, row) of the output, of ``count`` channels of the input from ``channel``."""
        w, variant, (n, y) = self.window, self.variant, row
        image, planes, output = self._image, self._planes, self._output
        made = channel * self.multiplier
        entry = self._table.at(made * variant.channel_words)
        if self.is_compact:
            packed, entry = self._table.at(made * variant.packed_bytes), self._unpacked.at()
            # Before the first row of a block only.
            some = y.is_zero(count * self.multiplier)
            c.call(variant.unpack_function, packed, entry, some)
        start = image.at(n, 0, 0, channel)
        c.call("utvm_slide", start, planes.at(), y, count, "border", self._geometry.at())
        turn = y if w.output_height <= self.period else y % self.period
        numbers = (
            *(w.output_width, count * self.multiplier, self.channels * self.multiplier),
            # The parts of a long row follow each other.
            *(2 * (self.part or self.pitch), 2 * self.pitch * self.ring, self.multiplier),
            *(variant.rows, variant.columns, variant.stride, variant.odd),
        )
        places = (
            planes.at(0, turn * w.strides[0]),
            entry,
            _LIMITS.at(),
            output.at(n, y, 0, made),
        )
        c.call(variant.function, *places, *numbers)

    @property
    def _table(self) -> Operand:
        outputs = self.channels * self.multiplier
        if self.is_compact:
            return Operand("table", (outputs * self.variant.packed_bytes,), "int8")
        return Operand("table", (outputs * self.variant.channel_words,), "int32")

    @property
    def _unpacked(self) -> Operand:
        """The table of a block."""
        made = min(self.block, self.channels) * self.multiplier
        return Operand("unpacked", (made * self.variant.channel_words,), "int32")

    @property
    def _planes(self) -> Operand:
        """The rings of a block."""
        channels = min(self.block, self.channels)
        return Operand("planes", (channels, self.ring, self.pitch), "int16")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.channels * self.multiplier), "int8")

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        # Pixels that became channels have the weights of the channels that they were.
        times = self.channels * self.multiplier // tables.weights.shape[0]
        weights = np.tile(np.moveaxis(tables.weights[..., 0], 0, 2), times)
        if self.part:
            rows, missing = self.variant.rows, -weights.shape[1] % self.part
            filled = np.pad(weights[0], ((0, missing), (0, 0)))
            weights = filled.reshape(rows, self.part, -1)
        tiled = Scaling(*(np.tile(one, times) for one in scaling))
        pack = table.pack_compact if self.is_compact else table.pack_table
        packed = (
            ConstantArgument("weights", pack(weights, tiled, self.variant)),
            ConstantArgument("limits", np.array(tables.limits, dtype=np.int32)),
        )
        found = windows_call(call, self, self.geometry, packed, tables.border)
        return replace(found, heeds_compact=COMPACT_LITTLE)


def planes_kernels(
    window: Window, channels: int, multiplier: int, choices: PlanesChoices
) -> Iterator[DspPlanes]:
    """The chosen kernel, or all kernels if the choices are open; none for windows too large.

    Of a dilated window, the pixels between its taps become channels.
    """
    dense = without_dilation(window)
    if dense is None:
        return
    window, channels = dense, channels * (window.width // dense.width)
    if choices.outputs is None:
        yield from _all_kernels(window, channels, multiplier)
        return
    # A ring that no window reaches the end of would be cut to what windows read.
    period = min(choices.period or 1, window.output_height)
    sizes = choices.channels or QUAD, period, choices.outputs, choices.part
    kernel = DspPlanes(window, channels, multiplier, *sizes)
    is_parted = choices.part in PARTS and window.kernel[0] == 1
    if kernel.variant.fits and (is_parted or not choices.part):
        yield kernel


def _all_kernels(window: Window, channels: int, multiplier: int) -> Iterator[DspPlanes]:
    width = window.output_width
    # A single block may have an odd number of outputs.
    counts = sorted({count for count in (*table.OUTPUTS, width) if count <= max(width, 2)})
    is_long = window.kernel[0] == 1 and window.kernel[1] > table.LARGEST_COLUMNS
    for outputs, part in product(counts, PARTS if is_long else (0,)):
        first = DspPlanes(window, channels, multiplier, BLOCKS[0], 1, outputs, part)
        if not first.variant.fits:
            continue
        for size, smaller in pairwise((*BLOCKS, 0)):
            for period in PERIODS:
                if smaller < channels and period <= window.output_height:
                    yield replace(first, block=size, period=period)
