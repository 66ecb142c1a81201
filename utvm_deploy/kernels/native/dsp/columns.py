"""CONV_2D for cores with the DSP extension: columns of widened rows times stationary weights.

The windows of a row share their columns in scratch. So scratch is smaller than with the gathered
patches of ``conv2d.py``, and filling it costs little. ``columns_code.py`` has the layout.

- The image of a pointwise convolution is one long row of pixels.
- Dilated: outputs that lie ``dilation`` pixels apart share columns. They are a *phase*. Each phase
  is done as a convolution of its own, and its pixels are then copied to their places.
- Groups: each group of channels is done alone, too. ``utvm_fill_columns`` takes an image of G
  groups for one with G times the pixels, of which a group sees every G-th.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar, NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Number, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import columns_code as code
from utvm_deploy.kernels.native.dsp.gemm_tables import CHANNELS, SLACK_BYTES, product_call, tables
from utvm_deploy.kernels.native.dsp.tile import PIXELS
from utvm_deploy.kernels.native.scaling import Scaling

_QUAD = 4
# Of ``struct utvm_columns_window``.
_GEOMETRY_WORDS = 13


class Block(NamedTuple):
    """A run of output blocks of equal size; those of a pointwise convolution are parts of a row."""

    first: int  # row, or pixel of the only row
    times: int
    rows: int
    width: int
    phase: int = 0
    phases: int = 0  # how many, from this one on, are as wide; 0: the window has none


@dataclass(frozen=True)
class ColumnsChoices(Choices):
    """How many output rows are done at a time, or how many pixels of an image that is one row."""

    method: ClassVar[str] = "columns"
    rows: int | None = None
    pixels: int | None = None
    packed: bool = False


@dataclass(frozen=True)
class DspColumns:
    """Shape parameters; ``rows`` of the output are done at a time.

    ``pixels`` is 0, unless the image is one row: then it tells how many are done at a time.
    """

    window: Window
    input_channels: int  # of a group, as the outputs
    output_channels: int
    rows: int
    pixels: int
    # Channels of one column follow each other; else those of each pixel fill quads.
    is_packed: bool = False
    groups: int = 1
    is_compact: bool = False  # the inner loop is short

    @property
    def name(self) -> str:
        channels = f"{self.groups * self.input_channels}x{self.groups * self.output_channels}"
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        return f"conv2d_{self.window.label}_{channels}{groups}_dsp"

    @property
    def why(self) -> str:
        what = f"{self.pixels} pixels" if self.is_one_row else f"{self.rows} rows"
        what += f" of each of {self.groups} groups" if self.groups > 1 else " of windows"
        return (
            f"DSP assembly, {PIXELS} pixels x {CHANNELS} channels in registers, "
            f"{what} in columns at a time"
        )

    @property
    def choices(self) -> ColumnsChoices:
        """What chooses this kernel."""
        if self.is_one_row:
            return ColumnsChoices(pixels=self.pixels)
        return ColumnsChoices(rows=self.rows, packed=self.is_packed)

    @property
    def is_one_row(self) -> bool:
        """Whether pixels of a row follow those of the row before like any others."""
        w = self.window
        return w.kernel == (1, 1) and w.strides == (1, 1) and not w.is_padded

    @property
    def quads(self) -> int:
        """Four channels of a pixel, the last filled up."""
        return -(-self.input_channels // _QUAD)

    @property
    def column(self) -> int:
        """Values of a column."""
        if self.is_packed:
            return -(-self.window.kernel[0] * self.input_channels // _QUAD) * _QUAD
        return self.window.kernel[0] * self.quads * _QUAD

    @property
    def phases(self) -> int:
        """Outputs from one to the next that shares columns with it; 0: to the next."""
        w = self.window
        return w.dilations[1] if w.kernel[1] > 1 and w.dilations[1] > 1 else 0

    @property
    def apart(self) -> int:
        """Pixels of the image from column to column; those between are seen by no window."""
        if self.phases:
            return self.phases
        return self.window.strides[1] if self.window.kernel[1] == 1 and not self.window.left else 1

    @property
    def pitch(self) -> int:
        """Values from a window to the next."""
        return self.column * (self.window.strides[1] if self.apart == 1 else 1)

    @property
    def step(self) -> int:
        """Of the inner loop."""
        depth = self.window.kernel[1] * self.column
        return code.step_of(depth, is_compact=self.is_compact)

    @property
    def depth(self) -> int:
        """Products of one output, padded to what the inner loop does."""
        return code.padded(self.window.kernel[1] * self.column, self.step)

    @property
    def blocks(self) -> list[Block]:
        w = self.window
        if self.is_one_row:
            width = w.output_height * w.output_width
            whole, rest = divmod(width, min(self.pixels, width))
            blocks = [Block(0, whole, 1, min(self.pixels, width))]
            return [*blocks, Block(width - rest, 1, 1, rest)] if rest else blocks
        whole, rest = divmod(w.output_height, self.rows)
        blocks = [Block(0, whole, self.rows, w.output_width)]
        if rest:
            blocks.append(Block(w.output_height - rest, 1, rest, w.output_width))
        if not self.phases:
            return blocks
        narrow, wider = divmod(w.output_width, self.phases)
        widths = ((narrow + 1, 0, wider), (narrow, wider, self.phases - wider))
        return [
            one._replace(width=width, phase=phase, phases=phases)
            for one in blocks
            for width, phase, phases in widths
            if width and phases
        ]

    def columns_of(self, width: int) -> int:
        """Columns that ``width`` windows of a row see."""
        return ((width - 1) * self.pitch) // self.column + self.window.kernel[1]

    @property
    def scratch_bytes(self) -> int:
        """Bytes of a block's columns, and of the outputs of a phase."""
        return sum(one.size_bytes for one in self.scratch)

    @property
    def geometry(self) -> Array:
        """``struct utvm_columns_window``, of each phase."""
        w, groups = self.window, self.groups
        rows = [
            (
                *(w.height, w.width * groups, self.input_channels, w.kernel[0], w.strides[0]),
                *(w.dilations[0], w.top, front, inside, first * groups, self.apart * groups),
                *(0 if self.is_packed else self.quads, self.column),
            )
            for phase in range(min(self.phases, w.output_width) or 1)
            for front, inside, first in [self.seen(phase)]
        ]
        return np.array(rows, dtype=np.int32).reshape(-1)

    def seen(self, phase: int) -> tuple[int, int, int]:
        """Columns before the image, in it (one row: 0), and the pixel at which the first lies."""
        w = self.window
        if self.is_one_row:
            return 0, 0, 0
        if not self.phases:
            return (
                w.left,
                min(-(-w.width // self.apart), self.columns_of(w.output_width) - w.left),
                0,
            )
        front = max(-(-(w.left - phase) // self.apart), 0)
        first = phase - w.left + front * self.apart
        columns = self.columns_of(-(-(w.output_width - phase) // self.apart))
        return front, min(-(-(w.width - first) // self.apart), columns - front), first

    @property
    def lag(self) -> Lag | None:
        pixels = self.pixels if self.is_one_row else self.rows * self.window.output_width
        sizes = self.groups * self.input_channels, self.groups * self.output_channels, pixels
        # Each phase, and each group, of some rows reads, after outputs of another were written.
        mixed = self.phases > 0 or self.groups > 1
        return lag_by_pixels(self.window, *sizes, mixed=mixed)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, *self._tables, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._columns, self._part) if self.phases else (self._columns,)

    def texts(self, core: str) -> tuple[str, ...]:
        forms = dict.fromkeys(self._form(one) for one in self.blocks)
        products = (code.columns_text(core, form) for form in forms)
        put = [shared_text("utvm_put_pixels")] if self.phases else []
        return shared_text("utvm_scale"), *products, code.fill_text(core), *put

    def drive(self, c: Driver) -> None:
        # All groups and phases of some rows are done before the next rows.
        for (_, times, _), some in groupby(self.blocks, lambda block: block[:3]):
            with c.loop("batch", self.window.batch) as n, c.loop("block", times) as number:
                for one in some:
                    phases = max(one.phases, 1)
                    with c.loop("phase", phases) as phase, c.loop("group", self.groups) as group:
                        self._block(c, one, (n, number, phase + one.phase, group))

    def _block(self, c: Driver, one: Block, counters: tuple[Number, ...]) -> None:
        """The calls for one phase and group of a block: fill columns, multiply, put pixels."""
        n, number, phase, group = counters
        columns, part = self._columns.at(), self._part.at()
        weights, scaling, limits = self._tables
        image, output = self._image, self._output
        y, x = self._place(one, number)
        width = self.columns_of(one.width)
        # Columns stay from block to block, except where another phase or group was there before.
        is_first = 1 if self.phases or self.groups > 1 else Index.of(number).is_zero()
        c.call(
            *("utvm_fill_columns", image.at(n * image.stride(0)), columns),
            *(y, x * self.groups + group, one.rows, width, is_first),
            *("border", self._geometry.at(phase * _GEOMETRY_WORDS)),
        )
        first = n * output.stride(0) + y * output.stride(1) + x * output.stride(2)
        there = output.at(first + group * self.output_channels)
        outputs = self.groups * self.output_channels
        pitches = [2 * self.pitch, *([outputs] * self._is_slice)]
        c.call(
            *(self._form(one).name, columns),
            weights.at(group * ((weights.elements - SLACK_BYTES) // self.groups)),
            scaling.at(group * (scaling.elements // self.groups)),
            *(limits.at(), part if self.phases else there),
            *(one.width, self.output_channels, self.depth, one.rows),
            *(2 * width * self.column, *pitches),
        )
        if self.phases:
            there = output.at(first + phase * outputs + group * self.output_channels)
            c.call(
                *("utvm_put_pixels", there, part, one.rows, one.width),
                *(self.output_channels, self.phases * outputs),
                self.window.output_width * outputs,
            )

    @property
    def _is_slice(self) -> bool:
        """Whether a tile goes among channels of other groups: a phase's are put there."""
        return self.groups > 1 and not self.phases

    def _form(self, one: Block) -> code.ColumnsForm:
        sizes = self.depth, self.step, 2 * self.pitch, one.width
        return code.form_of(*sizes, is_slice=self._is_slice)

    def _place(self, one: Block, number: Number) -> tuple[Number, Number]:
        """Row and pixel of the output with which a block begins."""
        if self.is_one_row:
            return 0, number * one.width + one.first
        return number * one.rows + one.first, 0

    @property
    def _image(self) -> Operand:
        w = self.window
        shape = w.batch, w.height, w.width, self.groups * self.input_channels
        return Operand("image", shape, "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.geometry.size,), "int32")

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand]:
        return tables(self.output_channels, self.depth, self.groups)

    @property
    def _output(self) -> Operand:
        w = self.window
        shape = w.output_height, w.output_width
        if self.is_one_row:
            shape = 1, w.output_height * w.output_width
        return Operand("output", (w.batch, *shape, self.groups * self.output_channels), "int8")

    @property
    def _columns(self) -> Operand:
        """The columns of the largest block, and what is read behind them."""
        behind = self.depth - self.window.kernel[1] * self.column + SLACK_BYTES // 2
        most = max(one.rows * self.columns_of(one.width) for one in self.blocks)
        return Operand("columns", (most * self.column + behind,), "int16")

    @property
    def _part(self) -> Operand:
        """The outputs of one phase of a block, before they are put where they belong."""
        most = max(one.rows * one.width for one in self.blocks)
        return Operand("part", (most, self.output_channels), "int8")


def columns_call(
    call: KernelCall,
    kernel: DspColumns,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [outputs, rows, columns, inputs]."""
    outputs, rows, columns, inputs = weights.shape
    by_column = weights.transpose(0, 2, 1, 3)
    if kernel.is_packed:
        by_column = by_column.reshape(outputs, columns, 1, rows * inputs)
    filled = np.zeros((*by_column.shape[:3], kernel.column // by_column.shape[2]), dtype=np.int8)
    filled[..., : by_column.shape[3]] = by_column
    flat = filled.reshape(outputs, -1)
    return product_call(call, kernel, flat, scaling, border, limits, kernel.groups)


def columns_kernel(
    window: Window,
    inputs: int,
    outputs: int,
    rows: int,
    pixels: int,
    *,
    is_packed: bool = False,
    groups: int = 1,
) -> DspColumns | None:
    """The kernel with these choices, inputs and outputs of a group; None where none fits."""
    rows = min(rows, window.output_height)
    kernel = DspColumns(window, inputs, outputs, rows, pixels, is_packed, groups)
    if is_packed and kernel.column == replace(kernel, is_packed=False).column:
        return None
    kernel = replace(kernel, rows=1) if kernel.is_one_row else replace(kernel, pixels=0)
    if kernel.phases:
        seen = (kernel.seen(phase) for phase in range(min(kernel.phases, window.output_width)))
        if window.strides[1] > 1 or any(inside < 1 for _, inside, _ in seen):
            return None
    if 2 * kernel.pitch > code.LONGEST_PITCH:
        return None
    return kernel
