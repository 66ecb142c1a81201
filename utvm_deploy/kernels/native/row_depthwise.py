"""DEPTHWISE_CONV_2D row by row: the skeleton that a micro-kernel of a family plugs into.

The micro-kernel computes one row of the output. It reads the image itself if there is no padding
and no channel to add. Otherwise it reads the rows under its windows, which ``c/utvm_rows.h``
copies to scratch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import bytes_texts, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import (
    Address,
    Buffer,
    Driver,
    KernelParameter,
    Number,
    Operand,
    buffers,
)
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.micro_kernel import MicroKernel, line_of


@dataclass(frozen=True)
class Steps:
    """Bytes from row to row, column to column and window to window of what is read."""

    row: int
    column: int
    window: int


class RowProduct(MicroKernel, Protocol):
    """A micro-kernel for one row of the output.

    Its C function takes the rows of the image, its tables, the output, and its numbers.
    """

    @property
    def group(self) -> int:
        """The number of channels in the rows is a multiple of this."""

    @property
    def tables(self) -> tuple[Buffer, ...]:
        """The constant tables that the function reads."""

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        """The last arguments of the function; ``count`` is the number of windows in a row."""


class ChannelRows:
    """The tables and numbers of row products that compute one channel after the other."""

    group: ClassVar[int] = 1
    tables: ClassVar[tuple[Buffer, ...]] = buffers(weights="int8", scaling="int32", limits="int32")

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        return steps.row, steps.column, steps.window, count, channels


@dataclass(frozen=True)
class RowDepthwise:
    """Shape parameters of a depthwise convolution; ``channels`` are those of the output."""

    window: Window
    channels: int
    product: RowProduct
    repeats: int = 1  # outputs of each input channel, which is copied that many times
    #: Bytes of weights of int4 that are unpacked to scratch before the first row; 0: they are int8.
    unpacked: int = field(default=0, kw_only=True)

    @property
    def name(self) -> str:
        factor = f"_x{self.repeats}" if self.repeats > 1 else ""
        ends = f"{self.product.label}{'_int4' if self.unpacked else ''}"
        return f"depthwise_{self.window.label}_{self.channels}{factor}_{ends}"

    @property
    def inputs(self) -> int:
        """Channels of the image."""
        return self.channels // self.repeats

    @property
    def pitch(self) -> int:
        """Bytes from pixel to pixel of what the micro-kernel reads."""
        return -(-self.channels // self.product.group) * self.product.group

    @property
    def is_copied(self) -> bool:
        """Whether rows are copied to scratch: for padding, or to add or repeat channels."""
        return self.window.is_padded or self.pitch != self.channels or self.repeats > 1

    @property
    def lag(self) -> Lag | None:
        sizes = self.inputs, self.channels, self.window.output_width
        return lag_by_pixels(self.window, *sizes, mixed=not self.is_copied)

    @property
    def steps(self) -> Steps:
        """Where the micro-kernel finds rows, columns and windows."""
        w = self.window
        row = w.padded_width if self.is_copied else w.dilations[0] * w.width
        return Steps(*(n * self.pitch for n in (row, w.dilations[1], w.strides[1])))

    @property
    def why(self) -> str:
        where = "rows with borders copied" if self.is_copied else "rows read in place"
        where += ", weights unpacked first" if self.unpacked else ""
        return f"{self.product.why}, {where}"

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        border = ("border",) if self.is_copied else ()
        return (self._image, *self.product.tables, *border, self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        line = (self._line,) if self.unpacked else ()
        return (self._rows, *line) if self.is_copied else line

    def texts(self, core: str) -> tuple[str, ...]:
        copied = (*bytes_texts(core), shared_text("utvm_rows")) if self.is_copied else ()
        unpack = (shared_text("utvm_unpack_halves"),) if self.unpacked else ()
        return (*self.product.texts(core), *copied, *unpack)

    def drive(self, c: Driver) -> None:
        w, image, output = self.window, self._image, self._output
        tables = self._read_tables(c)
        numbers = self.product.numbers(self.steps, w.output_width, self.channels)
        with c.loop("batch", w.batch) as n, c.loop("row", w.output_height) as y:
            first = y * w.strides[0]
            rows = image.at(n, first)
            if self.is_copied:
                rows = self._rows.at()
                self._copy_rows(c, n, first, w.kernel[0])
            c.call(self.product.function, rows, *tables, output.at(n, y), *numbers)

    def _read_tables(self, c: Driver) -> list[Address | str]:
        """What the micro-kernel reads, with weights that this unpacks."""
        weights, *others = (one.at() for one in self.product.tables)
        if not self.unpacked:
            return [weights, *others]
        line = line_of(self._line)
        c.call("utvm_unpack_halves", weights, line, self.unpacked)
        return [line, *others]

    @property
    def _line(self) -> Operand:
        """The unpacked weights, in words."""
        return Operand("line", (self.unpacked // 4,), "int32")

    def _copy_rows(self, c: Driver, n: Number, first: Number, lines: int) -> None:
        """Copy ``lines`` rows of image ``n``; ``first`` counts from its upper border."""
        w = self.window
        sizes = (w.height, w.width, self.inputs, self.repeats, self.pitch)
        window = (lines, w.dilations[0], w.padded_width)
        places = (self._image.at(n), self._rows.at(), first + -w.top, -w.left)
        c.call("utvm_rows_copy", *places, *sizes, *window, "border")

    @property
    def lines(self) -> int:
        """Rows of the image that a call of the micro-kernel reads."""
        return self.window.kernel[0]

    @property
    def _rows(self) -> Operand:
        """Copies of the rows under a window."""
        return Operand("rows", (self.lines, self.window.padded_width, self.pitch), "int8")

    @property
    def _image(self) -> Operand:
        return Operand("image", self.window.input_shape(self.inputs), "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.channels), "int8")


def row_depthwise_call(
    call: KernelCall, kernel: RowDepthwise, border: int, **tables: Array
) -> KernelCall:
    """The call instead of the portable one; ``tables`` in the order of the micro-kernel's."""
    image, *_, output = call.arguments
    constants = (ConstantArgument(name, data) for name, data in tables.items())
    padding = (ScalarArgument("border", border),) if kernel.is_copied else ()
    return replace(call, kernel=kernel, arguments=(image, *constants, *padding, output))
