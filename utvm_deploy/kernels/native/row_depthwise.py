"""DEPTHWISE_CONV_2D row by row, by a micro-kernel that a family brings along.

A row of the output is what the micro-kernel computes, and what the PrimFunc's block is tensorized
with. It reads the image itself, or, where there are borders or channels to fill up, the rows under
its windows, copied to scratch (``c/utvm_rows.h``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.micro_kernel import MicroKernel
from utvm_deploy.kernels.portable.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    script,
    tensorize,
)


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

    def weight(self, buffers: Buffers, c: Any, tap: Any) -> Any:
        """A weight as int32."""


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

    def prim_func(self) -> Any:
        w = self.window
        rows, tables, (sums, _) = self._rows, self._tables, self._results
        image = Operand("image", (w.batch, w.height, w.width, self._inputs), "int8")
        output = Operand(
            "output", (w.batch, w.output_height, w.output_width, self.channels), "int8"
        )

        def copy(buffers: Buffers, n: Any, y: Any) -> None:
            with script.sblock("pad"):
                vn, vy = script.axis.remap("SS", [n, y])
                whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                script.reads(buffers["image"][whole])
                script.writes(rows.region(buffers))
                start = script.address_of(buffers["image"][vn, 0, 0, 0])
                numbers = (
                    *(vy * w.strides[0] - w.top, -w.left, w.height, w.width),
                    *(self._inputs, self.repeats, self.pitch),
                    *(w.kernel[0], w.dilations[0], w.padded_width),
                )
                call = extern(
                    "utvm_rows_copy", start, rows.start(buffers), *numbers, buffers["border"]
                )
                script.evaluate(call)

        def body(buffers: Buffers) -> None:
            with script.grid(w.batch, w.output_height) as (n, y):
                if self.is_copied:
                    copy(buffers, n, y)
                with script.sblock("row"):
                    vn, vy = script.axis.remap("SS", [n, y])
                    first = vy * w.strides[0]
                    read = (
                        rows.region(buffers)
                        if self.is_copied
                        else buffers["image"][
                            vn, first : first + rows.shape[0], 0 : w.width, 0 : self.channels
                        ]
                    )
                    script.reads(read, *(one.region(buffers) for one in tables))
                    script.writes(
                        sums.region(buffers),
                        buffers["output"][vn, vy, 0 : w.output_width, 0 : self.channels],
                    )
                    source = (vn, first) if not self.is_copied else None
                    self._meaning(buffers, (vn, vy), source)

        border = ["border"] if self.is_copied else []
        copied = [rows] if self.is_copied else []
        return prim_func([image, *tables, *border, output], [sums, *copied], body)

    def schedule(self, sch: Any, core: str) -> str:
        texts = list(self.product.texts())
        if self.is_copied:
            texts += [shared_text("utvm_bytes"), shared_text("utvm_rows")]
        import_c(sch, *texts)
        reads, (sums, output) = [self._rows, *self._tables], self._results
        numbers = self.product.numbers(self.steps, self.window.output_width, self.channels)

        def call(buffers: Buffers) -> Any:
            starts = (one.start(buffers) for one in (*reads, output))
            return extern(self.product.function, *starts, *numbers)

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
        where = "rows with borders copied" if self.is_copied else "rows read in place"
        return f"{self.product.why}, {where}"

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
    def _results(self) -> tuple[Operand, Operand]:
        shape = (self.window.output_width, self.channels)
        return Operand("sums", shape, "int32"), Operand("output", shape, "int8")

    def _meaning(
        self, buffers: Buffers, row: tuple[Any, ...] = (), source: tuple[Any, Any] | None = None
    ) -> None:
        """What a row does; ``source``: image and row that its window reads in place."""
        w, sums = self.window, buffers["sums"]
        row_step = 1 if self.is_copied else w.dilations[0]
        axes = [("x", w.output_width, "S"), ("c", self.channels, "S")]
        window = [("r", w.kernel[0], "R"), ("k", w.kernel[1], "R")]

        def bias(x: Any, c: Any) -> None:
            script.buffer_store(sums, self.product.bias(buffers, c), [x, c])

        def product(x: Any, c: Any, r: Any, k: Any) -> None:
            column = x * w.strides[1] + k * w.dilations[1]
            if source is None:
                pixel = buffers["rows"][r * row_step, column, c]
            else:
                pixel = buffers["image"][source[0], source[1] + r * row_step, column, c]
            weight = self.product.weight(buffers, c, r * w.kernel[1] + k)
            script.buffer_store(sums, sums[x, c] + pixel.astype("int32") * weight, [x, c])

        def requantize(x: Any, c: Any) -> None:
            scaled = self.product.scaled(buffers, sums[x, c], c)
            script.buffer_store(buffers["output"], scaled, [*row, x, c])

        block("bias", axes, bias)
        block("product", [*axes, *window], product)
        block("requantize", axes, requantize)


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
