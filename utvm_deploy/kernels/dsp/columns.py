"""CONV_2D for cores with the DSP extension: columns of widened rows times stationary weights.

Beside the gathered patches of ``conv2d.py``: windows overlap in scratch, so it is smaller, and
filling it costs little. A pointwise convolution's image is one long row of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.dsp import columns_code as code
from utvm_deploy.kernels.dsp import gemm
from utvm_deploy.kernels.dsp.products import Tile, product_call, tables
from utvm_deploy.kernels.micro.scaling import Scaling
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import (
    ANY_CORE,
    Buffers,
    Operand,
    extern,
    import_c,
    prim_func,
    script,
    tensorize,
)
from utvm_deploy.kernels.window import Window

_QUAD = 4


class Block(NamedTuple):
    """Blocks of the output that are done alike; a pointwise one's rows are parts of one row."""

    first: int  # row, or pixel of the only row
    times: int
    rows: int
    width: int


@dataclass(frozen=True)
class DspColumns:
    """Shape parameters, and how it is computed: so many ``rows`` of the output at a time.

    ``pixels``, where it is not 0: the image is one row, of which so many are done at a time.
    """

    window: Window
    input_channels: int
    output_channels: int
    rows: int
    pixels: int
    # Channels of one column follow each other; else those of each pixel fill quads.
    is_packed: bool = False

    @property
    def name(self) -> str:
        return f"conv2d_{self.window.label}_{self.input_channels}x{self.output_channels}_dsp"

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
    def apart(self) -> int:
        """Pixels of the image from column to column; those between are seen by no window."""
        return self.window.strides[1] if self.window.kernel[1] == 1 and not self.window.left else 1

    @property
    def pitch(self) -> int:
        """Values from a window to the next."""
        return self.column * (self.window.strides[1] if self.apart == 1 else 1)

    @property
    def step(self) -> int:
        """Of the inner loop."""
        return code.step_of(self.window.kernel[1] * self.column)

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
        last = Block(w.output_height - rest, 1, rest, w.output_width)
        return [*blocks, last] if rest else blocks

    def columns_of(self, width: int) -> int:
        """Columns that so many windows see."""
        return ((width - 1) * self.pitch) // self.column + self.window.kernel[1]

    @property
    def scratch_bytes(self) -> int:
        """What the columns of a block take."""
        one = self.blocks[0]
        values = one.rows * self.columns_of(one.width) * self.column
        return 2 * (values + self.depth - self.window.kernel[1] * self.column) + code.SLACK_BYTES

    @property
    def geometry(self) -> Array:
        """``struct utvm_columns_window``."""
        w = self.window
        inside = 0
        if not self.is_one_row:
            seen = self.columns_of(w.output_width) - w.left
            inside = min(-(-w.width // self.apart), seen)
        values = (
            *(w.height, w.width, self.input_channels, w.kernel[0], w.strides[0], w.dilations[0]),
            *(w.top, w.left, inside, self.apart, 0 if self.is_packed else self.quads, self.column),
        )
        return np.array(values, dtype=np.int32)

    def prim_func(self) -> Any:
        w = self.window
        weights, scaling, limits = self._tables
        image = Operand("image", (w.batch, w.height, w.width, self.input_channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        shape = w.output_height, w.output_width
        if self.is_one_row:
            shape = 1, w.output_height * w.output_width
        output = Operand("output", (w.batch, *shape, self.output_channels), "int8")

        def body(buffers: Buffers) -> None:
            for number, one in enumerate(self.blocks):
                columns, sums, _ = self._tile(number, one)
                with script.grid(w.batch, one.times) as (n, b):
                    with script.sblock(f"fill_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                        script.reads(buffers["image"][whole], geometry.region(buffers))
                        script.writes(columns.region(buffers))
                        y, x = self._place(one, vb)
                        is_first = tirx.Select(vb == 0, tirx.const(1), tirx.const(0))
                        script.evaluate(
                            extern(
                                "utvm_fill_columns",
                                script.address_of(buffers["image"][vn, 0, 0, 0]),
                                columns.start(buffers),
                                *(y, x, one.rows, self.columns_of(one.width), is_first),
                                buffers["border"],
                                geometry.start(buffers),
                            )
                        )
                    with script.sblock(f"tile_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        y, x = self._place(one, vb)
                        script.reads(
                            *(o.region(buffers) for o in (columns, weights, scaling, limits))
                        )
                        script.writes(
                            sums.region(buffers),
                            buffers["output"][
                                vn, y : y + one.rows, x : x + one.width, 0 : self.output_channels
                            ],
                        )
                        self._meaning(number, one, buffers, (vn,), (y, x))

        tiles = [self._tile(number, one) for number, one in enumerate(self.blocks)]
        return prim_func(
            [image, geometry, weights, scaling, limits, "border", output],
            [operand for columns, sums, _ in tiles for operand in (columns, sums)],
            body,
            helpers=[shared_text("utvm_scale"), code.fill_text(ANY_CORE)],
        )

    def schedule(self, sch: Any, core: str) -> str:
        forms = list(dict.fromkeys(self._form(one) for one in self.blocks))
        texts = [code.columns_text(core, form) for form in forms]
        import_c(sch, shared_text("utvm_scale"), *texts, code.fill_text(core))
        weights, scaling, limits = self._tables
        for number, one in enumerate(self.blocks):
            columns, sums, output = self._tile(number, one)
            reads = [columns, weights, scaling, limits]
            tensorize(
                sch,
                f"tile_{number}",
                reads,
                [sums, output],
                partial(self._meaning, number, one),
                partial(self._call, [*reads, output], one),
            )
        what = f"{self.pixels} pixels" if self.is_one_row else f"{self.rows} rows"
        return (
            f"DSP assembly, {code.PIXELS} pixels x {gemm.CHANNELS} channels in registers, "
            f"{what} of windows in columns at a time"
        )

    def _call(self, operands: list[Operand], one: Block, buffers: Buffers) -> Any:
        row_bytes = 2 * self.columns_of(one.width) * self.column
        return extern(
            self._form(one).name,
            *(operand.start(buffers) for operand in operands),
            *(one.width, self.output_channels, self.depth, one.rows, row_bytes, 2 * self.pitch),
        )

    def _form(self, one: Block) -> code.Form:
        return code.form_of(self.depth, self.step, 2 * self.pitch, one.width)

    def _place(self, one: Block, number: Any) -> tuple[Any, Any]:
        """Row and pixel of the output with which a block begins."""
        if self.is_one_row:
            return 0, number * one.width + one.first
        return number * one.rows + one.first, 0

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand]:
        return tables(self.output_channels, self.depth)

    def _tile(self, number: int, one: Block) -> tuple[Operand, Operand, Operand]:
        values = replace(self, rows=one.rows, pixels=one.width).scratch_bytes // 2
        shape = (one.rows, one.width, self.output_channels)
        return (
            Operand(f"columns_{number}", (values,), "int16"),
            Operand(f"sums_{number}", shape, "int32"),
            Operand("output", shape, "int8"),
        )

    def _meaning(
        self,
        number: int,
        one: Block,
        buffers: Buffers,
        image: tuple[Any, ...] = (),
        start: tuple[Any, Any] = (0, 0),
    ) -> None:
        """What a tile does; its output begins at ``start``, row and pixel, of ``image``."""
        row = self.columns_of(one.width) * self.column

        def value(r: Any, p: Any, q: Any, f: Any, lane: Any) -> Any:
            return r * row + p * self.pitch + q * 4 + f * 2 + lane

        pixels = [("r", one.rows), ("p", one.width)]
        tile = Tile(number, pixels, self.output_channels, self.depth, "columns", value)
        tile.blocks(buffers, lambda r, p: (*image, start[0] + r, start[1] + p))


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
    return product_call(call, kernel, filled.reshape(outputs, -1), scaling, border, limits)


def columns_kernel(
    window: Window, inputs: int, outputs: int, rows: int, pixels: int, *, is_packed: bool = False
) -> DspColumns | None:
    """The kernel with these choices; None where windows do not fit it."""
    rows = min(rows, window.output_height)
    kernel = DspColumns(window, inputs, outputs, rows, pixels, is_packed)
    if is_packed and kernel.column == replace(kernel, is_packed=False).column:
        return None
    kernel = replace(kernel, rows=1) if kernel.is_one_row else replace(kernel, pixels=0)
    is_dilated = window.kernel[1] > 1 and window.dilations[1] > 1
    if is_dilated or 2 * kernel.pitch > code.LONGEST_PITCH:
        return None
    return kernel
