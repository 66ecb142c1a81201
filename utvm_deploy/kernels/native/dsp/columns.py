"""CONV_2D for cores with the DSP extension: columns of widened rows times stationary weights.

Beside the gathered patches of ``conv2d.py``: windows overlap in scratch, so it is smaller, and
filling it costs little. A pointwise convolution's image is one long row of pixels. Where columns
of a window lie apart, outputs as far apart share them: each such *phase* is done as a convolution
of its own, and its pixels are put where they belong. So is each *group* of channels: to what fills
the columns, an image of G groups is one of G times the pixels, of which a group sees every G-th.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import columns_code as code
from utvm_deploy.kernels.native.dsp import gemm
from utvm_deploy.kernels.native.dsp.products import Tile, product_call, tables
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.portable.tensor_ir import (
    ANY_CORE,
    Buffers,
    Operand,
    extern,
    import_c,
    prim_func,
    script,
    tensorize,
)

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

    def prim_func(self) -> Any:
        w = self.window
        channels, outputs = self.groups * self.input_channels, self.groups * self.output_channels
        image = Operand("image", (w.batch, w.height, w.width, channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        shape = w.output_height, w.output_width
        if self.is_one_row:
            shape = 1, w.output_height * w.output_width
        output = Operand("output", (w.batch, *shape, outputs), "int8")

        def part(number: int, one: Block, buffers: Buffers, loops: list[Any]) -> None:
            self._fill(number, one, buffers, loops, geometry)
            self._multiply(number, one, buffers, loops)
            if self.phases:
                self._put(number, one, buffers, loops)

        def body(buffers: Buffers) -> None:
            # All groups and phases of some rows are done before the next rows.
            for times, some in groupby(enumerate(self.blocks), lambda item: item[1][:3]):
                with script.grid(w.batch, times[1]) as (n, b):
                    for number, one in some:
                        inner = [one.phases] if self.phases else []
                        inner += [self.groups] if self.groups > 1 else []
                        if not inner:
                            part(number, one, buffers, [n, b])
                            continue
                        with script.grid(*inner) as loops:
                            several = list(loops) if len(inner) > 1 else [loops]
                            part(number, one, buffers, [n, b, *several])

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
            vn, vb, *others = script.axis.remap("S" * len(loops), loops)
            phase, group = self._part(one, others)
            whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
            script.reads(image[whole], geometry.region(buffers))
            script.writes(columns.region(buffers))
            y, x = self._place(one, vb)
            # Another phase was there before, or another group.
            is_first = 1 if others else tirx.Select(vb == 0, tirx.const(1), tirx.const(0))
            script.evaluate(
                extern(
                    "utvm_fill_columns",
                    script.address_of(image[vn, 0, 0, 0]),
                    columns.start(buffers),
                    *(y, x * self.groups + group, one.rows),
                    *(self.columns_of(one.width), is_first),
                    buffers["border"],
                    script.address_of(buffers["geometry"][phase * _GEOMETRY_WORDS]),
                )
            )

    def _multiply(self, number: int, one: Block, buffers: Buffers, loops: list[Any]) -> None:
        """The tile of a block; of a phase, into a place of its own."""
        columns, sums, part = self._tile(number, one)
        output = buffers["output"]
        with script.sblock(f"tile_{number}"):
            vn, vb, *others = script.axis.remap("S" * len(loops), loops)
            _, group = self._part(one, others)
            y, x = self._place(one, vb)
            limits = self._tables[2]
            of_group = (
                buffers[o.name][group * o.shape[0] : (group + 1) * o.shape[0]]
                for o in self._tile_tables[:2]
            )
            script.reads(columns.region(buffers), *of_group, limits.region(buffers))
            if self.phases:
                script.writes(sums.region(buffers), part.region(buffers))
                self._meaning(number, one, {**buffers, "output": buffers[part.name]}, group=group)
                return
            first = group * self.output_channels
            channels = slice(first, first + self.output_channels)
            there = output[vn, y : y + one.rows, x : x + one.width, channels]
            script.writes(sums.region(buffers), there)
            self._meaning(number, one, buffers, (vn,), (y, x, first), group)

    def _put(self, number: int, one: Block, buffers: Buffers, loops: list[Any]) -> None:
        """A phase's pixels where they belong."""
        _, _, part = self._tile(number, one)
        w, output = self.window, buffers["output"]
        with script.sblock(f"put_{number}"):
            vn, vb, *others = script.axis.remap("S" * len(loops), loops)
            x, group = self._part(one, others)
            y, channels = self._place(one, vb)[0], self.groups * self.output_channels
            script.reads(part.region(buffers))
            script.writes(output[vn, y : y + one.rows, 0 : w.output_width, 0:channels])
            script.evaluate(
                extern(
                    "utvm_put_pixels",
                    script.address_of(output[vn, y, x, group * self.output_channels]),
                    part.start(buffers),
                    *(one.rows, one.width, self.output_channels),
                    *(self.phases * channels, w.output_width * channels),
                )
            )

    def _part(self, one: Block, others: list[Any]) -> tuple[Any, Any]:
        """Phase and group of a block, from the loops within its own."""
        phase = others[0] + one.phase if self.phases else 0
        return phase, others[-1] if self.groups > 1 else 0

    @property
    def _put_texts(self) -> list[str]:
        return [shared_text("utvm_put_pixels")] if self.phases else []

    def schedule(self, sch: Any, core: str) -> str:
        forms = list(dict.fromkeys(self._form(one) for one in self.blocks))
        texts = [code.columns_text(core, form) for form in forms]
        import_c(sch, shared_text("utvm_scale"), *texts, code.fill_text(core), *self._put_texts)
        for number, one in enumerate(self.blocks):
            columns, sums, part = self._tile(number, one)
            output = replace(part, name="output")
            reads = [columns, *self._tile_tables]
            tensorize(
                sch,
                f"tile_{number}",
                reads,
                [sums, output],
                partial(self._meaning, number, one),
                partial(self._call, [*reads, output], one),
            )
        what = f"{self.pixels} pixels" if self.is_one_row else f"{self.rows} rows"
        what += f" of each of {self.groups} groups" if self.groups > 1 else " of windows"
        return (
            f"DSP assembly, {code.PIXELS} pixels x {gemm.CHANNELS} channels in registers, "
            f"{what} in columns at a time"
        )

    def _call(self, operands: list[Operand], one: Block, buffers: Buffers) -> Any:
        row_bytes = 2 * self.columns_of(one.width) * self.column
        pitches = [2 * self.pitch, *([self.groups * self.output_channels] * self._is_slice)]
        return extern(
            self._form(one).name,
            *(operand.start(buffers) for operand in operands),
            *(one.width, self.output_channels, self.depth, one.rows, row_bytes, *pitches),
        )

    @property
    def _is_slice(self) -> bool:
        """Whether a tile goes among channels of other groups: a phase's are put there."""
        return self.groups > 1 and not self.phases

    def _form(self, one: Block) -> code.Form:
        sizes = self.depth, self.step, 2 * self.pitch, one.width
        return code.form_of(*sizes, is_slice=self._is_slice)

    def _place(self, one: Block, number: Any) -> tuple[Any, Any]:
        """Row and pixel of the output with which a block begins."""
        if self.is_one_row:
            return 0, number * one.width + one.first
        return number * one.rows + one.first, 0

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand]:
        return tables(self.output_channels, self.depth, self.groups)

    @property
    def _tile_tables(self) -> tuple[Operand, Operand, Operand]:
        """Of one group; behind them are those of the next, or what nobody uses."""
        if self.groups == 1:
            return self._tables
        return tables(self.output_channels, self.depth, slack=0)

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
        start: tuple[Any, Any, Any] = (0, 0, 0),
        group: Any = 0,
    ) -> None:
        """What a tile does; its output begins at ``start`` (row, pixel, channel) of ``image``."""
        row = self.columns_of(one.width) * self.column

        def value(r: Any, p: Any, q: Any, f: Any, lane: Any) -> Any:
            return r * row + p * self.pitch + q * 4 + f * 2 + lane

        pixels = [("r", one.rows), ("p", one.width)]
        y, x, first = start
        tile = Tile(number, pixels, self.output_channels, self.depth, "columns", value, group)
        tile.blocks(buffers, lambda r, p: (*image, y + r, x + p), first)


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
