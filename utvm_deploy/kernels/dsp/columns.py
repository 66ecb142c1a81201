"""CONV_2D for cores with the DSP extension: columns of widened rows times stationary weights.

Beside the gathered patches of ``conv2d.py``: windows overlap in scratch, so it is smaller, and
filling it costs little. A pointwise convolution's image is one long row of pixels. Where columns
of a window lie apart, outputs as far apart share them: each such *phase* is done as a convolution
of its own, and its pixels are put where they belong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.dsp import columns_code as code
from utvm_deploy.kernels.dsp import gemm
from utvm_deploy.kernels.dsp.code import helper
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
# Of ``struct utvm_columns_window``.
_GEOMETRY_WORDS = 13


class Block(NamedTuple):
    """Blocks of the output that are done alike; a pointwise one's rows are parts of one row."""

    first: int  # row, or pixel of the only row
    times: int
    rows: int
    width: int
    phase: int = 0
    phases: int = 0  # from this one on, alike; 0: the window has none


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
        """Columns that so many windows see."""
        return ((width - 1) * self.pitch) // self.column + self.window.kernel[1]

    @property
    def scratch_bytes(self) -> int:
        """What the columns of a block take."""
        one = self.blocks[0]
        apart = one.rows * one.width * self.output_channels if self.phases else 0
        return 2 * self._values(one) + apart

    @property
    def geometry(self) -> Array:
        """``struct utvm_columns_window``, of each phase."""
        w = self.window
        rows = [
            (
                *(w.height, w.width, self.input_channels, w.kernel[0], w.strides[0]),
                *(w.dilations[0], w.top, *self.seen(phase), self.apart),
                *(0 if self.is_packed else self.quads, self.column),
            )
            for phase in range(min(self.phases, w.output_width) or 1)
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

    def prim_func(self) -> Any:
        w = self.window
        image = Operand("image", (w.batch, w.height, w.width, self.input_channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        shape = w.output_height, w.output_width
        if self.is_one_row:
            shape = 1, w.output_height * w.output_width
        output = Operand("output", (w.batch, *shape, self.output_channels), "int8")

        def body(buffers: Buffers) -> None:
            # All phases of some rows are done before the next rows.
            for times, some in groupby(enumerate(self.blocks), lambda item: item[1][:3]):
                with script.grid(w.batch, times[1]) as (n, b):
                    for number, one in some:
                        if not self.phases:
                            self._fill(number, one, buffers, [n, b], geometry)
                            self._multiply(number, one, buffers, [n, b])
                            continue
                        with script.grid(one.phases) as f:
                            self._fill(number, one, buffers, [n, b, f], geometry)
                            self._multiply(number, one, buffers, [n, b, f])
                            self._put(number, one, buffers, [n, b, f])

        temporaries = [
            operand
            for number, one in enumerate(self.blocks)
            for operand in self._tile(number, one)[: 3 if self.phases else 2]
        ]
        helpers = [shared_text("utvm_scale"), code.fill_text(ANY_CORE)]
        return prim_func(
            [image, geometry, *self._tables, "border", output],
            temporaries,
            body,
            helpers=[*helpers, *self._put_texts],
        )

    def _fill(
        self, number: int, one: Block, buffers: Buffers, loops: list[Any], geometry: Operand
    ) -> None:
        """The columns of a block."""
        columns, *_ = self._tile(number, one)
        image = buffers["image"]
        with script.sblock(f"fill_{number}"):
            vn, vb, *phases = script.axis.remap("S" * len(loops), loops)
            whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
            script.reads(image[whole], geometry.region(buffers))
            script.writes(columns.region(buffers))
            y, x = self._place(one, vb)
            phase = (phases[0] + one.phase) * _GEOMETRY_WORDS if phases else 0
            # Another phase was there before.
            is_first = 1 if phases else tirx.Select(vb == 0, tirx.const(1), tirx.const(0))
            script.evaluate(
                extern(
                    "utvm_fill_columns",
                    script.address_of(image[vn, 0, 0, 0]),
                    columns.start(buffers),
                    *(y, x, one.rows, self.columns_of(one.width), is_first),
                    buffers["border"],
                    script.address_of(buffers["geometry"][phase]),
                )
            )

    def _multiply(self, number: int, one: Block, buffers: Buffers, loops: list[Any]) -> None:
        """The tile of a block; of a phase, into a place of its own."""
        columns, sums, part = self._tile(number, one)
        output = buffers["output"]
        with script.sblock(f"tile_{number}"):
            vn, vb, *phases = script.axis.remap("S" * len(loops), loops)
            y, x = self._place(one, vb)
            script.reads(*(o.region(buffers) for o in (columns, *self._tables)))
            if phases:
                script.writes(sums.region(buffers), part.region(buffers))
                self._meaning(number, one, {**buffers, "output": buffers[part.name]})
                return
            there = output[vn, y : y + one.rows, x : x + one.width, 0 : self.output_channels]
            script.writes(sums.region(buffers), there)
            self._meaning(number, one, buffers, (vn,), (y, x))

    def _put(self, number: int, one: Block, buffers: Buffers, loops: list[Any]) -> None:
        """A phase's pixels where they belong."""
        _, _, part = self._tile(number, one)
        w, output = self.window, buffers["output"]
        with script.sblock(f"put_{number}"):
            vn, vb, vp = script.axis.remap("SSS", loops)
            y, x = self._place(one, vb)[0], vp + one.phase
            script.reads(part.region(buffers))
            script.writes(
                output[vn, y : y + one.rows, 0 : w.output_width, 0 : self.output_channels]
            )
            script.evaluate(
                extern(
                    "utvm_put_pixels",
                    script.address_of(output[vn, y, x, 0]),
                    part.start(buffers),
                    *(one.rows, one.width, self.output_channels),
                    *(self.phases * self.output_channels, w.output_width * self.output_channels),
                )
            )

    @property
    def _put_texts(self) -> list[str]:
        return [helper("utvm_put_pixels")] if self.phases else []

    def schedule(self, sch: Any, core: str) -> str:
        forms = list(dict.fromkeys(self._form(one) for one in self.blocks))
        texts = [code.columns_text(core, form) for form in forms]
        import_c(sch, shared_text("utvm_scale"), *texts, code.fill_text(core), *self._put_texts)
        for number, one in enumerate(self.blocks):
            columns, sums, part = self._tile(number, one)
            output = replace(part, name="output")
            reads = [columns, *self._tables]
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
        shape = (one.rows, one.width, self.output_channels)
        return (
            Operand(f"columns_{number}", (self._values(one),), "int16"),
            Operand(f"sums_{number}", shape, "int32"),
            Operand(f"part_{number}", shape, "int8"),
        )

    def _values(self, one: Block) -> int:
        """Of columns, and what is read behind them."""
        values = one.rows * self.columns_of(one.width) * self.column
        behind = self.depth - self.window.kernel[1] * self.column
        return values + behind + code.SLACK_BYTES // 2

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
    if kernel.phases:
        seen = (kernel.seen(phase) for phase in range(min(kernel.phases, window.output_width)))
        if window.strides[1] > 1 or any(inside < 1 for _, inside, _ in seen):
            return None
    if 2 * kernel.pitch > code.LONGEST_PITCH:
        return None
    return kernel
