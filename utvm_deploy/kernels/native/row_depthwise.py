"""DEPTHWISE_CONV_2D row by row, by a micro-kernel that a family brings along.

The micro-kernel computes one row of the output. It reads the image itself, or, where there are
borders or channels to fill up, the rows under its windows, copied to scratch (``c/utvm_rows.h``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.micro_kernel import MicroKernel


@dataclass(frozen=True)
class Steps:
    """Bytes from row to row, column to column and window to window of the rows that are read."""

    row: int
    column: int
    window: int


class RowProduct(MicroKernel, Protocol):
    """A micro-kernel of depthwise rows.

    The function takes the rows, its tables, the output, and numbers of its own.
    """

    @property
    def group(self) -> int:
        """Channels of the rows are filled up to multiples of this."""

    def tables(self, taps: int, channels: int) -> tuple[Operand, ...]:
        """Whatever it reads beside the rows."""

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        """The function's last arguments; ``count`` windows in a row."""


@dataclass(frozen=True)
class RowDepthwise:
    """Shape parameters of a depthwise convolution; ``channels`` are those of the output."""

    window: Window
    channels: int
    product: RowProduct
    # Outputs of each channel of the input, which is copied so many times.
    repeats: int = 1

    @property
    def name(self) -> str:
        factor = f"_x{self.repeats}" if self.repeats > 1 else ""
        return f"depthwise_{self.window.label}_{self.channels}{factor}_{self.product.label}"

    @property
    def pitch(self) -> int:
        """Bytes from pixel to pixel, as the micro-kernel reads them."""
        return -(-self.channels // self.product.group) * self.product.group

    @property
    def is_copied(self) -> bool:
        """Whether rows are copied to scratch: for borders, or channels to fill up or repeat."""
        return self.window.is_padded or self.pitch != self.channels or self.repeats > 1

    @property
    def lag(self) -> Lag | None:
        sizes = self.channels // self.repeats, self.channels, self.window.output_width
        return lag_by_pixels(self.window, *sizes, mixed=not self.is_copied)

    @property
    def scratch_bytes(self) -> int:
        """What the copied rows take."""
        return math.prod(self._rows.shape) if self.is_copied else 0

    @property
    def steps(self) -> Steps:
        """How the rows lie in memory."""
        w = self.window
        row_step = 1 if self.is_copied else w.dilations[0]
        row = row_step * self._rows.shape[1] * self.pitch
        return Steps(row, w.dilations[1] * self.pitch, w.strides[1] * self.pitch)

    @property
    def why(self) -> str:
        where = "rows with borders copied" if self.is_copied else "rows read in place"
        return f"{self.product.why}, {where}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        border = ("border",) if self.is_copied else ()
        return (self._image, *self._tables, *border, self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._rows,) if self.is_copied else ()

    def texts(self, core: str) -> tuple[str, ...]:
        copied = ("utvm_bytes", "utvm_rows") if self.is_copied else ()
        return (*self.product.texts(), *map(shared_text, copied))

    def drive(self, c: Driver) -> None:
        w, image, output = self.window, self._image, self._output
        tables = [one.at() for one in self._tables]
        numbers = self.product.numbers(self.steps, w.output_width, self.channels)
        with c.loop("batch", w.batch) as n, c.loop("row", w.output_height) as y:
            first = y * w.strides[0]
            rows = image.at(n * image.stride(0) + first * image.stride(1))
            if self.is_copied:
                rows = self._rows.at()
                sizes = (w.height, w.width, self._inputs, self.repeats, self.pitch)
                window = (w.kernel[0], w.dilations[0], w.padded_width)
                start = image.at(n * image.stride(0))
                places = (start, rows, first + -w.top, -w.left)
                c.call("utvm_rows_copy", *places, *sizes, *window, "border")
            made = output.at(n * output.stride(0) + y * output.stride(1))
            c.call(self.product.function, rows, *tables, made, *numbers)

    @property
    def _inputs(self) -> int:
        return self.channels // self.repeats

    @property
    def _rows(self) -> Operand:
        w = self.window
        if self.is_copied:
            return Operand("rows", (w.kernel[0], w.padded_width, self.pitch), "int8")
        reach = (w.kernel[0] - 1) * w.dilations[0] + 1
        return Operand("rows", (reach, w.width, self.channels), "int8")

    @property
    def _tables(self) -> tuple[Operand, ...]:
        return self.product.tables(self.window.kernel[0] * self.window.kernel[1], self.channels)

    @property
    def _image(self) -> Operand:
        w = self.window
        return Operand("image", (w.batch, w.height, w.width, self._inputs), "int8")

    @property
    def _output(self) -> Operand:
        w = self.window
        shape = w.batch, w.output_height, w.output_width, self.channels
        return Operand("output", shape, "int8")


def row_depthwise_call(
    call: KernelCall, kernel: RowDepthwise, tables: Sequence[ConstantArgument], border: int
) -> KernelCall:
    """The call instead of the generic one; ``tables`` as the product wants them."""
    arguments: list[Argument] = [call.arguments[0], *tables]
    if kernel.is_copied:
        arguments.append(ScalarArgument("border", border))
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    return replace(call, kernel=kernel, arguments=(*arguments, output))
