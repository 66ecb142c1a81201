"""CONV_2D over patches for cores with the DSP extension: im2col in blocks of output pixels.

``utvm_gather`` copies the windows of a block to scratch, and the product of ``gemm.py`` writes the
outputs of the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import gemm, tile
from utvm_deploy.kernels.native.dsp.gather import gather_text
from utvm_deploy.kernels.native.dsp.gemm_tables import (
    SLACK_BYTES,
    product_call,
    table_arguments,
    tables,
)
from utvm_deploy.kernels.native.scaling import Scaling

#: Pixels of a block: by default, and those that the choice is from.
_PIXELS = 12
_SIZES = (3, 6, 9, 12, 18, 24, 36, 48)
_WORD = 4
# Cycles.
_QUAD = 2.6
_BORDER = 1.4
_TAP = 55.0  # gathered separately, if those of a row are not neighbours


@dataclass(frozen=True)
class PatchesChoices(Choices):
    """Pixels gathered at a time, and products of the inner loop."""

    pixels: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class DspPatches:
    """Shape parameters, and how it is computed: ``pixels`` are gathered at a time."""

    window: Window
    input_channels: int
    output_channels: int
    pixels: int
    step: int  # of the inner loop

    @property
    def name(self) -> str:
        return f"conv2d_{self.window.label}_{self.input_channels}x{self.output_channels}_dsp"

    @property
    def why(self) -> str:
        return f"{tile.WHY}, {self.pixels} pixels gathered at a time"

    @property
    def choices(self) -> PatchesChoices:
        """What chooses this kernel."""
        return PatchesChoices(self.pixels, self.step)

    @property
    def depth(self) -> int:
        """Products of one output, padded to what the inner loop does."""
        return gemm.padded_depth(int(np.prod(self.window.kernel)) * self.input_channels)

    @property
    def product(self) -> str:
        """The C function of the matrix product."""
        return gemm.name_of(self.step, self.depth)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the patches of a block."""
        return self._patches.size_bytes

    @property
    def geometry(self) -> Array:
        """``struct utvm_window``."""
        w = self.window
        values = (w.height, w.width, self.input_channels, w.output_width, *w.kernel)
        return np.array([*values, *w.strides, *w.dilations, w.top, w.left], dtype=np.int32)

    @property
    def tables(self) -> tuple[Operand, Operand, Operand]:
        """Weights, scaling and limits."""
        return tables(self.output_channels, self.depth)

    @property
    def lag(self) -> Lag | None:
        return lag_by_pixels(self.window, self.input_channels, self.output_channels, self.pixels)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, *self.tables, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (self._patches,)

    def texts(self, core: str) -> tuple[str, ...]:
        product = gemm.gemm_text(core, self.step, self.depth)
        return shared_text("utvm_scale"), product, gather_text(core)

    def drive(self, c: Driver) -> None:
        image, output, patches = self._image, self._output, self._patches.at()
        weights, scaling, limits = (one.at() for one in self.tables)
        for first, count, pixels in self._blocks:
            sizes = pixels, self.output_channels, self.depth
            with c.loop("batch", self.window.batch) as n, c.loop("block", count) as block:
                start = block * pixels + first
                source = image.at(n * image.stride(0))
                c.call(
                    *("utvm_gather", source, patches, start, pixels),
                    *("border", self._geometry.at()),
                )
                there = output.at(n * output.stride(0) + start * output.stride(1))
                c.call(self.product, patches, weights, scaling, limits, there, *sizes)

    def patches(self, pixels: int) -> Operand:
        """Scratch for the patches of a block of ``pixels`` pixels."""
        groups = -(-pixels // tile.PIXELS)
        size = groups * tile.PIXELS * self.depth + SLACK_BYTES // 2
        if self.input_channels % 4:
            # One window's bytes, and what the last word of its last row is longer.
            size += (self.depth + _WORD) // 2
        return Operand("patches", (size,), "int16")

    @property
    def _patches(self) -> Operand:
        """Scratch of all blocks, one after the other; the first is the largest."""
        return self.patches(self._blocks[0][2])

    @property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """First pixel, how many blocks, pixels of each."""
        outputs = self.window.output_height * self.window.output_width
        pixels = min(self.pixels, outputs)
        whole, rest = divmod(outputs, pixels)
        blocks = [(0, whole, pixels)]
        return [*blocks, (whole * pixels, 1, rest)] if rest else blocks

    @property
    def _image(self) -> Operand:
        w = self.window
        return Operand("image", (w.batch, w.height, w.width, self.input_channels), "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.geometry.size,), "int32")

    @property
    def _output(self) -> Operand:
        w = self.window
        shape = w.batch, w.output_height * w.output_width, self.output_channels
        return Operand("output", shape, "int8")

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
        one_tile = tile.estimated_cycles(tile.PIXELS, self.depth, self.step)
        cycles = -(-outputs // tile.PIXELS) * pairs * one_tile
        cycles = cycles + outputs * gather + blocks * pairs * 34
        return w.batch * (cycles + tile.cache_cycles(blocks, pairs * 2 * self.depth))


def patches_call(
    call: KernelCall,
    kernel: DspPatches,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [outputs, rows, columns, inputs]."""
    flat = weights.reshape(weights.shape[0], -1)
    packed = table_arguments(flat, scaling, limits, kernel.depth)
    return product_call(call, kernel, packed, border)


def patches_kernel(
    window: Window, inputs: int, outputs: int, choices: PatchesChoices | None = None
) -> DspPatches | str:
    """The kernel as chosen, what is left open by default; why there is none."""
    kernel = DspPatches(window, inputs, outputs, 0, 0)
    steps = gemm.steps_for(kernel.depth)
    pixels, step = (choices.pixels, choices.step) if choices else (None, None)
    if step is not None and step not in steps:
        return f"the inner loop has no step of {step} for depth {kernel.depth}; there are {steps}"
    if pixels is not None and (pixels < tile.PIXELS or pixels % tile.PIXELS):
        return f"{pixels} pixels are not gathered at a time; multiples of {tile.PIXELS} are"
    return replace(kernel, pixels=pixels or _PIXELS, step=step or steps[0])


def patches_kernels(window: Window, inputs: int, outputs: int) -> Iterator[DspPatches]:
    """Kernels with the default step to choose from."""
    plain = patches_kernel(window, inputs, outputs)
    assert isinstance(plain, DspPatches)
    most = window.output_height * window.output_width + tile.PIXELS
    # A block with all outputs is the last that makes a difference.
    yield from (replace(plain, pixels=pixels) for pixels in _SIZES if pixels < most)
