"""Convolutions over patches, which are gathered windows of int16, with the DSP extension.

TRANSPOSE_CONV is such a convolution by blocks of output pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.assembly import patches_code as code
from utvm_deploy.kernels.native.dsp.assembly import tile
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8, UNPACKED, Values
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D, gathered_conv2d_call
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import table_arguments
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.transpose_conv import BlockConv, as_convolution, block_conv_call
from utvm_deploy.records.candidate import COMPACT_MOST

#: Pixels of a block: by default, and those that the choice is from.
_PIXELS = 12
_SIZES = (3, 6, 9, 12, 18, 24, 36, 48)
_WORD = 4
# Cycles.
_QUAD = 2.6
_BORDER = 1.4
_UNPACKING, _UNPACKED_WORD = 10.0, 5.0  # the weights of two channels, and of eight weights
_TAP = 55.0  # gathered separately, if those of a row are not neighbours


@dataclass(frozen=True)
class PatchesChoices(Choices):
    """Pixels of a block, and products of a turn of the inner loop."""

    pixels: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class PatchesProduct:
    """The micro-kernel of ``patches_code.py``."""

    step: int  # of the inner loop
    depth: int  # padded
    values: Values = INT8

    label = "dsp"
    pixels = tile.PIXELS
    depth_step = code.DEPTH_STEP
    why = tile.WHY

    @property
    def function(self) -> str:
        return code.name_of(self.step, self.depth, self.values)

    def texts(self, core: str) -> tuple[str, ...]:
        text = code.gemm_text(core, self.step, self.depth, self.values)
        return *self.values.texts(), text

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        words, halves = self.values.scaling_words, self.values.halves
        return tile.tables(channels, depth, scaling_words=words, halves=halves)

    @property
    def lines(self) -> tuple[Operand, ...]:
        """Scratch for the unpacked weights of two channels, if they are packed."""
        size = tile.CHANNELS * self.depth + tile.SLACK_BYTES
        return (Operand(UNPACKED, (size // 4,), "int32"),) if self.values.halves else ()

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        return self.values.pack(weights, rows[: self.values.rows], self.depth)


@dataclass(frozen=True)
class DspPatches(GatheredConv2D):
    """A convolution whose windows are gathered as int16, so also those of one pixel."""

    product: PatchesProduct

    @property
    def choices(self) -> PatchesChoices:
        """The choices of a candidate for this kernel."""
        return PatchesChoices(self.pixels, self.product.step)

    @property
    def rounded_once(self) -> DspPatches:
        """The kernel for tables of ``single_rounding.py``."""
        values = replace(self.product.values, once=True)
        return replace(self, product=replace(self.product, values=values))

    @property
    def is_gathered(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return f"{super().name}{'_int4' if self.product.values.halves else ''}"

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return *super().scratch, *self.product.lines

    @property
    def geometry(self) -> Array:
        """``struct utvm_window``."""
        return super().geometry[:-1]

    def texts(self, core: str) -> tuple[str, ...]:
        return *self.product.texts(core), code.gather_text(core)

    def windows(self, pixels: int) -> Operand:
        tiles = -(-pixels // tile.PIXELS)
        values = tiles * tile.PIXELS * self.depth + tile.SLACK_BYTES // 2
        if self.input_channels % 4:
            # The bytes of a window; the last word of its last row may be longer.
            values += (self.depth + _WORD) // 2
        return Operand("patches", (values,), "int16")

    def _do_block(self, c: Driver, n: Index, first: Index, pixels: int) -> None:
        image, output, patches = self._image, self._output, self.windows(self._block).at()
        geometry = Operand("geometry", (self.geometry.size,), "int32").at()
        source = image.at(n)
        c.call("utvm_gather", source, patches, first, pixels, "border", geometry)
        target = output.at(n, first)
        places = patches, *(one.at() for one in self.tables), target
        lines = (f"(int8_t *){one.name}" for one in self.product.lines)
        c.call(self.product.function, *places, pixels, self.output_channels, self.depth, *lines)

    @property
    def estimated_cycles(self) -> float:
        """Cycles of a layer, as the cores take them that have records."""
        w, channels = self.window, self.input_channels
        outputs = w.output_height * w.output_width
        blocks, pairs = -(-outputs // self.pixels), -(-self.output_channels // 2)
        gather = 64 + self.depth / 4 * _QUAD + 6 * w.kernel[0]
        if channels % 4:
            row = 10 + w.kernel[1] * channels / 4 * 3
            gather = 50 + self.depth / 4 * _QUAD + w.kernel[0] * row
            gather *= _BORDER if w.is_padded else 1
        if w.kernel[1] > 1 and w.dilations[1] > 1:
            gather += w.kernel[0] * w.kernel[1] * _TAP
        one_tile = tile.estimated_cycles(tile.PIXELS, self.depth, self.product.step)
        cycles = -(-outputs // tile.PIXELS) * pairs * one_tile
        cycles = cycles + outputs * gather + blocks * pairs * 34
        if self.product.values.halves:
            cycles += blocks * pairs * (_UNPACKING + self.depth / 4 * _UNPACKED_WORD)
        return w.batch * (cycles + tile.cache_cycles(blocks, pairs * 2 * self.depth))

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        rows, limits = np.array(scaling, dtype=np.int32), tables.limits
        found = gathered_conv2d_call(call, self, tables.weights, rows, limits, tables.border)
        return replace(found, heeds_compact=COMPACT_MOST)


def patches_kernel(
    window: Window,
    inputs: int,
    outputs: int,
    groups: int,
    choices: PatchesChoices,
    *,
    halves: bool = False,
) -> DspPatches | str:
    """The kernel with these choices, or why there is none; open choices get their defaults."""
    if groups > 1:
        return f"patches of {groups} groups are not gathered"
    depth = code.padded_depth(math.prod(window.kernel) * inputs)
    steps = code.steps_for(depth)
    step, pixels = choices.step or steps[0], choices.pixels or _PIXELS
    if step not in steps:
        return f"the inner loop has no step of {step} for depth {depth}; there are {steps}"
    if pixels % tile.PIXELS:
        return f"{pixels} pixels are not gathered at a time; multiples of {tile.PIXELS} are"
    product = PatchesProduct(step, depth, replace(INT8, halves=halves))
    return DspPatches(window, inputs, outputs, product, pixels)


def patches_kernels(
    window: Window,
    inputs: int,
    outputs: int,
    groups: int,
    step: int | None = None,
    *,
    halves: bool = False,
) -> Iterator[DspPatches]:
    """Kernels to choose from with a step of the inner loop, or with the default step.

    ``halves``: the weights are int4.
    """
    choices = PatchesChoices(step=step)
    plain = patches_kernel(window, inputs, outputs, groups, choices, halves=halves)
    if isinstance(plain, DspPatches):
        most = window.output_height * window.output_width + tile.PIXELS
        # A block with all outputs is the last that makes a difference.
        yield from (replace(plain, pixels=pixels) for pixels in _SIZES if pixels < most)


@dataclass(frozen=True)
class DspTransposeConv(BlockConv):
    """All rows of a block are channels of one product."""

    family = "dsp"
    driver = "utvm_transpose_conv"
    helpers = "utvm_bytes_copy", "utvm_scatter_blocks"


def dsp_transpose_conv_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    found = as_convolution(call)
    if isinstance(found, str):
        return found
    kernel, tables, first = found
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    outputs = tables.weights.shape[0]
    conv = patches_kernel(tables.window, tables.inputs, outputs, 1, PatchesChoices())
    if isinstance(conv, str):
        return conv
    made = DspTransposeConv(conv, kernel.strides, first, kernel.output, conv.pixels)
    rows = np.array(scaling, dtype=np.int32)
    packed = conv.product.pack(tables.weights.reshape(outputs, -1), rows)
    return block_conv_call(call, made, table_arguments([packed], tables.limits), tables.border)
