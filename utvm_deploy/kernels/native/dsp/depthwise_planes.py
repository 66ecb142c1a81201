"""DEPTHWISE_CONV_2D over planes: rows widened once, channels in blocks, several outputs at a time.

Channels are done in blocks, so that the rows under a window, as int16, take little scratch. A block
keeps a ring of rows in its planes; when its end is reached, the rows that stay move to the front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.lag import Lag, least_lag
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import depthwise_planes_code as code
from utvm_deploy.kernels.native.dsp.code import helper
from utvm_deploy.kernels.native.dsp.depthwise_planes_table import (
    pack_compact,
    packed_bytes,
    unpack_name,
    unpack_text,
)
from utvm_deploy.kernels.native.dsp.planes_ring import slide_text
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Channels of a block, best first: a line of a cache, or parts of one.
BLOCKS = (32, 24, 16, 8, 4)
#: Taps at a time of a long row: words again.
PARTS = (2, 4, 6)
#: Output rows until the ring's rows move.
PERIODS = (4, 3, 2, 1)
_LIMITS = Operand("limits", (2,), "int32")


@dataclass(frozen=True)
class PlanesChoices(Choices):
    """Channels of a block, outputs and rows at a time, and taps at a time of a long row."""

    method: ClassVar[str] = "planes"
    channels: int | None = None
    outputs: int | None = None
    period: int | None = None
    part: int = 0


@dataclass(frozen=True)
class DspPlanes:
    """Shape parameters of a depthwise convolution, and how it is computed."""

    window: Window
    channels: int
    multiplier: int  # outputs of each channel
    block: int  # channels at a time
    period: int  # output rows until the ring's rows move
    outputs: int  # at a time
    part: int = 0  # taps at a time of a window that is a long row; 0: all
    is_compact: bool = False  # the table takes few bytes, and is unpacked block by block

    @property
    def name(self) -> str:
        times = f"x{self.multiplier}" if self.multiplier > 1 else ""
        return f"depthwise_{self.window.label}_{self.channels}{times}_dsp"

    @property
    def choices(self) -> PlanesChoices:
        """What chooses this kernel."""
        return PlanesChoices(self.block, self.outputs, self.period, self.part)

    @property
    def form(self) -> code.PlanesForm:
        """What the inner block's code depends on."""
        w = self.window
        kernel = (-(-w.kernel[1] // self.part), self.part) if self.part else w.kernel
        return code.form_of(
            kernel, w.strides[1], w.left % 2, self.outputs, w.output_width, self.multiplier
        )

    @property
    def ring(self) -> int:
        """Rows of a plane."""
        w = self.window
        return w.strides[0] * (self.period - 1) + w.kernel[0]

    @property
    def columns(self) -> int:
        """Columns of the image that windows see."""
        return min(self.window.width, self.window.padded_width - self.window.left)

    @property
    def pitch(self) -> int:
        """Columns of a plane."""
        w, form = self.window, self.form
        last = (w.output_width - 1) // self.outputs * self.outputs  # output of the last block
        if form.tail != code.PARTIAL:
            last = w.output_width - self.outputs
        reach = last * w.strides[1] + form.reach
        reach += (form.rows - 1) * self.part
        return max(reach, w.left + form.odd + -(-self.columns // 2) * 2)

    @property
    def lag(self) -> Lag | None:
        w, channels = self.window, self.channels
        is_whole = self.block >= channels
        if w.batch != 1 or not (is_whole or self.multiplier == 1):
            return None
        rows = np.arange(w.output_height)
        kept = max(w.kernel[0] - w.strides[0], 0)  # of the window's rows, from the row before
        reads = np.maximum(rows * w.strides[0] - w.top + kept, 0) * w.width * channels
        reads[0] = 0
        writes = (rows + 1) * w.output_width * channels * self.multiplier
        least = least_lag(reads, writes)
        return Lag(least) if is_whole else Lag(least, unit_bytes=channels)

    @property
    def scratch_bytes(self) -> int:
        """What the planes of a block take, and its table where that is unpacked."""
        channels = min(self.block, self.channels)
        table = channels * self.multiplier * self.form.channel_words * 4 if self.is_compact else 0
        return channels * self.ring * self.pitch * 2 + table

    def parted(self, weights: Array) -> Array:
        """Weights [rows, columns, channels] with each part of a long row as one of its own."""
        if not self.part:
            return weights
        filled = np.zeros((self.form.rows * self.part, weights.shape[2]), dtype=weights.dtype)
        filled[: weights.shape[1]] = weights[0]
        return filled.reshape(self.form.rows, self.part, -1)

    @property
    def geometry(self) -> Array:
        """``struct utvm_planes_window``."""
        w = self.window
        values = (
            *(w.height, w.width, self.channels, self.columns, w.kernel[0], w.strides[0], w.top),
            *(w.left + self.form.odd, self.pitch, self.ring, self.period),
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
        unpack = (unpack_text(self.form),) if self.is_compact else ()
        scale = helper("utvm_scale_doubled")
        return scale, code.planes_text(core, self.form), slide_text(core), *unpack

    def drive(self, c: Driver) -> None:
        w = self.window
        for first, blocks, count in self._blocks:
            with (
                c.loop("batch", w.batch) as n,
                c.loop("block", blocks) as block,
                c.loop("row", w.output_height) as y,
            ):
                self._drive_row(c, (n, y), block * count + first, count)

    def _drive_row(self, c: Driver, row: tuple[Index, Index], channel: Index, count: int) -> None:
        """A row of an image's output, from ``channel`` of the input on."""
        w, form, (n, y) = self.window, self.form, row
        image, planes, output, table = self._image, self._planes, self._output, self._table
        made, words = channel * self.multiplier, form.channel_words
        entry = table.at(made * words)
        if self.is_compact:
            packed = table.at(made * packed_bytes(form))
            # Before the first row of a block only.
            some = y.is_zero(count * self.multiplier)
            entry = self._unpacked.at()
            c.call(unpack_name(form), packed, entry, some)
        start = image.at(n * image.stride(0) + channel)
        c.call("utvm_slide", start, planes.at(), y, count, "border", self._geometry.at())
        turn = y if w.output_height <= self.period else y % self.period
        numbers = (
            *(w.output_width, count * self.multiplier, self.channels * self.multiplier),
            # The parts of a long row follow each other.
            *(2 * (self.part or self.pitch), 2 * self.pitch * self.ring, self.multiplier),
            *(form.rows, form.columns, form.stride, form.odd),
        )
        places = (
            planes.at(turn * (w.strides[0] * self.pitch)),
            entry,
            _LIMITS.at(),
            output.at(n * output.stride(0) + y * output.stride(1) + made),
        )
        c.call(form.name, *places, *numbers)

    @property
    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """First channel, how many blocks, channels of each."""
        count = min(self.block, self.channels)
        whole, rest = divmod(self.channels, count)
        yield 0, whole, count
        if rest:
            yield whole * count, 1, rest

    @property
    def _image(self) -> Operand:
        w = self.window
        return Operand("image", (w.batch, w.height, w.width, self.channels), "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.geometry.size,), "int32")

    @property
    def _table(self) -> Operand:
        outputs = self.channels * self.multiplier
        if self.is_compact:
            return Operand("table", (outputs * packed_bytes(self.form),), "int8")
        return Operand("table", (outputs * self.form.channel_words,), "int32")

    @property
    def _unpacked(self) -> Operand:
        """The table of a block."""
        made = min(self.block, self.channels) * self.multiplier
        return Operand("unpacked", (made * self.form.channel_words,), "int32")

    @property
    def _planes(self) -> Operand:
        """The rings of a block."""
        channels = min(self.block, self.channels)
        return Operand("planes", (channels, self.ring, self.pitch), "int16")

    @property
    def _output(self) -> Operand:
        w = self.window
        outputs = self.channels * self.multiplier
        return Operand("output", (w.batch, w.output_height, w.output_width, outputs), "int8")


def planes_choices(window: Window, channels: int, multiplier: int) -> Iterator[DspPlanes]:
    """All kernels; none for windows that are too large. Their taps must be neighbours."""
    # A single block may have an odd number of outputs.
    width = window.output_width
    counts = sorted({count for count in (*code.OUTPUTS, width) if count <= max(width, 2)})
    is_long = window.kernel[0] == 1 and window.kernel[1] > code.LARGEST_COLUMNS
    for outputs, part in product(counts, PARTS if is_long else (0,)):
        first = DspPlanes(window, channels, multiplier, BLOCKS[0], 1, outputs, part)
        if not first.form.fits:
            continue
        for size, smaller in pairwise((*BLOCKS, 0)):
            for period in PERIODS:
                # A ring that no window reaches the end of would be cut to what windows read.
                if smaller < channels and period <= window.output_height:
                    yield replace(first, block=size, period=period)


def planes_call(
    call: KernelCall,
    kernel: DspPlanes,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [rows, columns, output channels]."""
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    pack = pack_compact if kernel.is_compact else code.pack_table
    arguments = (
        call.arguments[0],
        ConstantArgument("geometry", kernel.geometry),
        ConstantArgument("weights", pack(kernel.parted(weights), scaling, kernel.form)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
        ScalarArgument("border", border),
        output,
    )
    return replace(call, kernel=kernel, arguments=arguments, heeds_compact=COMPACT_LITTLE)
