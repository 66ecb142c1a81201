"""CONV_2D as a matrix product over columns, which the windows of a row share.

Scratch holds the rows under a row of windows as int16, one image column after the other. There, a
window is one run of values, and the next window begins ``pitch`` values later. So scratch is
smaller than with gathered windows (``gathered_gemm.py``). A row of the image is widened once for
each row of the kernel, not for each tap. A family derives its own class from ``ColumnConv2D``, with
the product and the C function that fills the columns. An image of int16 is copied to them.

- The image of a pointwise convolution is one long row of pixels.
- Dilation: outputs that are ``dilation`` pixels apart share columns. They are a *phase*. Each phase
  is computed as a separate convolution, and its outputs are then copied to their places.
- Groups of channels are computed one after the other. For ``utvm_fill_columns``, an image of G
  groups is one with G times the pixels, of which a group reads every G-th.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, NamedTuple

import numpy as np

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.driver import Driver, Index, Number, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.micro_kernel import equal_blocks

# Of ``struct utvm_columns_window``.
_GEOMETRY_WORDS = 13


class Block(NamedTuple):
    """A run of blocks of output rows, or of pixels of the only row, that are equally large."""

    first: int  # row, or pixel of the only row
    times: int
    rows: int
    width: int
    phase: int = 0
    phases: int = 0  # phases from this one on with as many pixels; 0: there are no phases


@dataclass(frozen=True)
class ColumnConv2D:
    """Shape parameters. A block has ``rows`` of the output, or ``pixels`` of the only row."""

    window: Window
    input_channels: int  # of a group, as the outputs
    output_channels: int
    rows: int
    pixels: int  # 0: there are several rows
    # The channels of a column follow each other; otherwise those of a pixel are filled up to quads.
    is_packed: bool = False
    groups: int = 1

    family: ClassVar[str]
    #: What the product does, for the report.
    product_why: ClassVar[str]
    #: Bytes that the product reads past the weights, and past the columns.
    slack_bytes: ClassVar[int]

    @property
    def dtype(self) -> str:
        """The type of the image and of the outputs."""
        return "int8"

    @property
    def unit(self) -> int:
        """The values of a pixel are filled up to a multiple of this."""
        return 4

    @property
    def step(self) -> int:
        """Values that a turn of the inner loop multiplies."""
        raise NotImplementedError

    @property
    def fill_function(self) -> str:
        """The C function that fills the columns."""
        return "utvm_fill_columns"

    @property
    def tables(self) -> tuple[Operand, Operand, Operand]:
        """Weights and scaling of all groups, and limits."""
        raise NotImplementedError

    def function(self, block: Block) -> str:
        """The C function of the product for a block."""
        raise NotImplementedError

    def product_texts(self, core: str) -> tuple[str, ...]:
        """The C texts of the product and of ``utvm_fill_columns``."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        channels = f"{self.groups * self.input_channels}x{self.groups * self.output_channels}"
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        return f"conv2d_{self.window.label}_{channels}{groups}_{self.family}"

    @property
    def why(self) -> str:
        what = f"{self.pixels} pixels" if self.is_one_row else f"{self.rows} rows"
        what += f" of each of {self.groups} groups" if self.groups > 1 else " of windows"
        return f"{self.product_why}, {what} in columns at a time"

    @property
    def is_one_row(self) -> bool:
        """Whether the image counts as one row: windows are its pixels, in their order."""
        w = self.window
        return w.kernel == (1, 1) and w.strides == (1, 1) and not w.is_padded

    @property
    def quads(self) -> int:
        """Units of channels of a pixel, the last one filled up: quads of int8."""
        return -(-self.input_channels // self.unit)

    @property
    def column(self) -> int:
        """Values of a column."""
        if self.is_packed:
            return -(-self.window.kernel[0] * self.input_channels // self.unit) * self.unit
        return self.window.kernel[0] * self.quads * self.unit

    @property
    def phases(self) -> int:
        """Outputs from one to the next that shares columns with it; 0: neighbours share them."""
        w = self.window
        return w.dilations[1] if w.kernel[1] > 1 and w.dilations[1] > 1 else 0

    @property
    def apart(self) -> int:
        """Pixels of the image from column to column; no window reads those between."""
        if self.phases:
            return self.phases
        return self.window.strides[1] if self.window.kernel[1] == 1 and not self.window.left else 1

    @property
    def pitch(self) -> int:
        """Values from a window to the next."""
        return self.column * (self.window.strides[1] if self.apart == 1 else 1)

    @property
    def window_values(self) -> int:
        """Values of a window."""
        return self.window.kernel[1] * self.column

    @property
    def depth(self) -> int:
        """Products of an output, with the zeros that fill up the last step."""
        return -(-self.window_values // self.step) * self.step

    @property
    def blocks(self) -> list[Block]:
        """The blocks in their order; of each rows all phases."""
        w = self.window
        if self.is_one_row:
            runs = equal_blocks(w.output_height * w.output_width, self.pixels)
            return [Block(first, times, 1, pixels) for first, times, pixels in runs]
        # Pixels of a row or of a phase, the first such phase, and the number of these phases.
        widths = [(w.output_width, 0, 0)]
        if self.phases:
            pixels, wider = divmod(w.output_width, self.phases)
            widths = [(pixels + 1, 0, wider), (pixels, wider, self.phases - wider)]
            widths = [one for one in widths if one[0] and one[2]]
        runs = equal_blocks(w.output_height, self.rows)
        return [Block(*run, *width) for run in runs for width in widths]

    def columns_of(self, width: int) -> int:
        """Columns of ``width`` windows of a row."""
        return ((width - 1) * self.pitch) // self.column + self.window.kernel[1]

    @property
    def geometry(self) -> Array:
        """``struct utvm_columns_window`` of each phase."""
        w, groups = self.window, self.groups
        rows = [
            (
                *(w.height, w.width * groups, self.input_channels, w.kernel[0], w.strides[0]),
                *(w.dilations[0], w.top, front, inside, first * groups, self.apart * groups),
                *(0 if self.is_packed else self.quads, self.column),
            )
            for phase in range(min(self.phases, w.output_width) or 1)
            for front, inside, first in [self.columns_inside(phase)]
        ]
        return np.array(rows, dtype=np.int32).reshape(-1)

    def columns_inside(self, phase: int) -> tuple[int, int, int]:
        """Columns before the image, those in it (one row: 0), and the pixel of the first of them.

        The second is less than 1 where the windows of a phase see no pixel.
        """
        w = self.window
        if self.is_one_row:
            return 0, 0, 0
        if not self.phases:
            inside = self.columns_of(w.output_width) - w.left
            return w.left, min(-(-w.width // self.apart), inside), 0
        front = max(-(-(w.left - phase) // self.apart), 0)
        first = phase - w.left + front * self.apart
        columns = self.columns_of(-(-(w.output_width - phase) // self.apart))
        return front, min(-(-(w.width - first) // self.apart), columns - front), first

    def by_column(self, weights: Array) -> Array:
        """[outputs, rows, columns, inputs] -> [outputs, values of a window] in their order here."""
        outputs, rows, columns, inputs = weights.shape
        split = weights.transpose(0, 2, 1, 3)
        if self.is_packed:
            split = split.reshape(outputs, columns, 1, rows * inputs)
        missing = self.column // split.shape[2] - split.shape[3]
        return np.pad(split, ((0, 0), (0, 0), (0, 0), (0, missing))).reshape(outputs, -1)

    @property
    def lag(self) -> Lag | None:
        pixels = self.pixels if self.is_one_row else self.rows * self.window.output_width
        size = self.groups * element_type(self.dtype).unit_bytes
        sizes = size * self.input_channels, size * self.output_channels, pixels
        # Each phase, and each group, of a block reads the image after others wrote outputs.
        mixed = self.phases > 0 or self.groups > 1
        return lag_by_pixels(self.window, *sizes, mixed=mixed)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, *self.tables, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._columns, self._part) if self.phases else (self._columns,)

    def texts(self, core: str) -> tuple[str, ...]:
        put = [_put_text(self.dtype)] if self.phases else []
        return (*self.product_texts(core), *put)

    def drive(self, c: Driver) -> None:
        # All groups and phases of some rows before the next rows.
        for (_, times, _), some in groupby(self.blocks, lambda block: block[:3]):
            with c.loop("batch", self.window.batch) as n, c.loop("block", times) as number:
                for one in some:
                    phases = max(one.phases, 1)
                    with c.loop("phase", phases) as phase, c.loop("group", self.groups) as group:
                        self._compute(c, one, (n, number, phase + one.phase, group))

    def _compute(self, c: Driver, one: Block, counters: tuple[Number, ...]) -> None:
        """Call what fills the columns of a phase and group, multiplies, and puts the pixels."""
        n, number, phase, group = counters
        columns, part = self._columns.at(), self._part.at()
        weights, scaling, limits = self.tables
        image, output = self._image, self._output
        first = number * (one.width if self.is_one_row else one.rows) + one.first
        y, x = (0, first) if self.is_one_row else (first, 0)
        width = self.columns_of(one.width)
        # The border stays from block to block, unless another phase or group was there in between.
        is_first = 1 if self.phases or self.groups > 1 else Index.of(number).is_zero()
        c.call(
            *(self.fill_function, image.at(n), columns),
            *(y, x * self.groups + group, one.rows, width, is_first),
            *("border", self._geometry.at(phase * _GEOMETRY_WORDS)),
        )
        there = output.at(n, y, x, group * self.output_channels)
        outputs = self.groups * self.output_channels
        c.call(
            *(self.function(one), columns),
            weights.at(group * ((weights.elements - self.slack_bytes) // self.groups)),
            scaling.at(group * (scaling.elements // self.groups)),
            *(limits.at(), part if self.phases else there),
            *(one.width, self.output_channels, self.depth, one.rows),
            *(2 * width * self.column, 2 * self.pitch),
            *([outputs] if self.is_slice else []),
        )
        if self.phases:
            there = output.at(n, y, x, phase * outputs + group * self.output_channels)
            c.call(
                *(_put_function(self.dtype), there, part, one.rows, one.width),
                *(self.output_channels, self.phases * outputs),
                self.window.output_width * outputs,
            )

    @property
    def is_slice(self) -> bool:
        """Whether the product stores among the channels of other groups."""
        return self.groups > 1 and not self.phases

    @property
    def _image(self) -> Operand:
        shape = self.window.input_shape(self.groups * self.input_channels)
        return Operand("image", shape, self.dtype)

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.geometry.size,), "int32")

    @property
    def _output(self) -> Operand:
        batch, height, width, channels = self.window.output_shape(
            self.groups * self.output_channels
        )
        rows, pixels = (1, height * width) if self.is_one_row else (height, width)
        return Operand("output", (batch, rows, pixels, channels), self.dtype)

    @property
    def _columns(self) -> Operand:
        """The columns of the largest block, and what is read past them."""
        behind = self.depth - self.window_values + self.slack_bytes // 2
        most = max(one.rows * self.columns_of(one.width) for one in self.blocks)
        return Operand("columns", (most * self.column + behind,), "int16")

    @property
    def _part(self) -> Operand:
        """The outputs of one phase of a block."""
        most = max(one.rows * one.width for one in self.blocks)
        return Operand("part", (most, self.output_channels), self.dtype)


def _put_function(dtype: str) -> str:
    return "utvm_put_pixels" if dtype == "int8" else "utvm_put_wide_pixels"


def _put_text(dtype: str) -> str:
    """The C of that function."""
    text = shared_text("utvm_put_pixels")
    if dtype == "int8":
        return text
    sizes = ("int8_t", "int16_t", 3), (", 4);", ", 8);", 1), ("bytes apart", "values apart", 1)
    return replaced(text, ("utvm_put_pixels", _put_function(dtype), 1), *sizes)
