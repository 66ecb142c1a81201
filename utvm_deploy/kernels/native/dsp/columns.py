"""CONV_2D over columns for cores with the DSP extension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.column_gemm import Block, ColumnConv2D
from utvm_deploy.kernels.native.dsp.assembly import columns_code as code
from utvm_deploy.kernels.native.dsp.assembly import columns_three_channels, tile
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8, PairedValues, Values
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import table_arguments, windows_call
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Blocks that the choice is from: rows of windows, and pixels of a pointwise convolution.
ROWS = (1, 2, 3, 4, 6, 8)
PIXELS = (3, 6, 12, 24, 36, 48, 72, 96, 144)
# Cycles.
_QUAD, _UNALIGNED_QUAD = 2.6, 2.6
_BYTE = 4.5
_IN_PAIRS = {1: 1.8, 3: 5.0}  # a pixel, by channels, if rows are filled in pairs
_PUT_PIXEL = 8.0  # of a phase, in addition to one for each channel
_BORDER_VALUE = 0.6


@dataclass(frozen=True)
class ColumnsChoices(Choices):
    """Output rows of a block, or pixels of an image that is one row; and ``is_packed``."""

    method = "columns"
    rows: int | None = None
    pixels: int | None = None
    packed: bool = False


@dataclass(frozen=True)
class DspColumns(ColumnConv2D):
    """A convolution over columns, with the product of ``columns_code.py``."""

    is_compact: bool = False  # the inner loop is short
    values: Values = INT8

    slack_bytes = tile.SLACK_BYTES
    product_why = tile.WHY

    @property
    def choices(self) -> ColumnsChoices:
        """The choices of a candidate for this kernel."""
        if self.is_one_row:
            return ColumnsChoices(pixels=self.pixels)
        return ColumnsChoices(rows=self.rows, packed=self.is_packed)

    @property
    def rounded_once(self) -> DspColumns:
        """The kernel for tables of ``single_rounding.py``."""
        return replace(self, values=replace(self.values, once=True))

    @property
    def family(self) -> str:  # type: ignore[override]
        return f"dsp{self.values.label}"

    @property
    def dtype(self) -> str:
        return self.values.dtype

    @property
    def unit(self) -> int:
        return self.values.unit

    @property
    def step(self) -> int:
        short = {"is_compact": self.is_compact, "is_whole": self.values.can_be_whole}
        return code.step_of(self.window_values, **short)

    @property
    def fill_function(self) -> str:
        return code.fill_function(self.values)

    @property
    def tables(self) -> tuple[Operand, Operand, Operand]:
        return tile.tables(self.output_channels, self.depth, self.groups)

    def function(self, block: Block) -> str:
        return self._form(block).name

    def product_texts(self, core: str) -> tuple[str, ...]:
        products = (code.columns_text(core, form) for form in self.forms)
        return *self.values.texts(), *products, code.fill_text(core, self.values)

    @property
    def forms(self) -> tuple[code.ColumnsForm, ...]:
        """Those of its routines, each once."""
        return tuple(dict.fromkeys(self._form(one) for one in self.blocks))

    def _form(self, one: Block) -> code.ColumnsForm:
        is_whole = self.values.can_be_whole and self.step == self.depth
        tail = one.width % tile.PIXELS
        sizes = self.step, is_whole, 2 * self.pitch, tail
        return code.ColumnsForm(*sizes, self.is_slice, self.values)

    @property
    def estimated_cycles(self) -> float:
        """Cycles of a layer, as the cores take them that have records."""
        w, pairs, channels = self.window, -(-self.output_channels // 2), self.input_channels
        cycles, passes = 0.0, 0
        for one in self.blocks:
            whole, rest = divmod(one.width, tile.PIXELS)
            row = whole * tile.estimated_cycles(tile.PIXELS, self.depth, self.step) + 14
            if rest:
                row += tile.estimated_cycles(rest, self.depth, self.step)
            times = one.times * max(one.phases, 1) * self.groups
            cycles += times * pairs * (one.rows * row + 20)
            inside = min(self.columns_of(one.width), w.width * w.height)
            quad = self.unit / 4 * _QUAD
            quad += _UNALIGNED_QUAD if self.input_channels % self.unit else 0
            pixel = self.quads * quad + (4 if self.column != self.input_channels else 0)
            if self.is_packed:
                is_paired = isinstance(self.values, PairedValues)
                pixel = _IN_PAIRS[channels] if is_paired else channels * _BYTE
            cycles += times * (60 + one.rows * w.kernel[0] * (40 + inside * pixel))
            if self.phases:
                put = one.width * (_PUT_PIXEL + self.output_channels)
                border = one.rows * self.columns_of(one.width) * self.column * _BORDER_VALUE
                cycles += times * (one.rows * put + (border if w.is_padded else 0))
            passes += times
        weights = self.groups * pairs * 2 * self.depth
        return w.batch * (cycles + tile.cache_cycles(passes // self.groups, weights))

    def by_column(self, weights: Array) -> Array:
        is_of_threes = isinstance(self.values, PairedValues) and self.values.channels == 3
        return (
            columns_three_channels.by_column(weights)
            if is_of_threes
            else super().by_column(weights)
        )

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        weights, rows = self.by_column(tables.weights), np.array(scaling, dtype=np.int32)
        made = self.values.pack(weights, rows, self.depth, self.groups)
        packed = table_arguments([made], tables.limits)
        found = windows_call(call, self, self.geometry, packed, tables.border)
        return replace(found, heeds_compact=COMPACT_LITTLE)


def columns_kernel(
    window: Window,
    inputs: int,
    outputs: int,
    groups: int,
    choices: ColumnsChoices,
    values: Values = INT8,
) -> DspColumns | None:
    """The kernel with these choices for channels of a group; None if there is none."""
    rows, pixels = min(choices.rows or 1, window.output_height), choices.pixels or PIXELS[-1]
    sizes = inputs, outputs, rows, pixels
    if choices.packed and values == INT8 and inputs in code.FILLED_IN_PAIRS:
        values = PairedValues(inputs)
    kernel = DspColumns(window, *sizes, choices.packed, groups, values=values)
    if kernel.is_packed and kernel.column == replace(kernel, is_packed=False).column:
        return None
    kernel = replace(kernel, rows=1) if kernel.is_one_row else replace(kernel, pixels=0)
    if kernel.phases:
        phases = range(min(kernel.phases, window.output_width))
        inside = [kernel.columns_inside(phase)[1] for phase in phases]
        if window.strides[1] > 1 or min(inside) < 1:
            return None
    return kernel if 2 * kernel.pitch <= code.LONGEST_PITCH else None


def columns_kernels(
    window: Window, inputs: int, outputs: int, groups: int, values: Values = INT8
) -> Iterator[DspColumns]:
    """All kernels to choose from for channels of a group."""
    sizes = window, inputs, outputs, groups
    for is_packed in (False, True):
        first = columns_kernel(*sizes, ColumnsChoices(packed=is_packed), values)
        if first is None:
            continue
        last = window.output_height
        if first.is_one_row:
            last *= window.output_width
        for size in PIXELS if first.is_one_row else ROWS:
            yield replace(first, pixels=size) if first.is_one_row else replace(first, rows=size)
            # A block with all outputs is the last that makes a difference.
            if size >= last:
                break
