"""TRANSPOSE_CONV as an ordinary convolution, whose pixels are blocks of output pixels.

Row k of the kernel adds input row (y + padding - k) / stride to output row y. With
y + padding = stride * q + r, these are the input rows q - j for k = r + stride * j. So for each r
there is an ordinary convolution of stride 1. All outputs of a block of stride x stride pixels see
the same window: they are the channels of one pixel. Taps that only some of them have are weights of
zero for the others. A driver in C gathers the windows, multiplies, and copies the pixels of each
block to their places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.layer_tables import (
    ConvolutionTables,
    constants,
    limits_of,
    scalars,
)
from utvm_deploy.kernels.native.micro_kernel import windows_call
from utvm_deploy.kernels.portable.integers.transpose_conv import TransposeConv2D


@dataclass(frozen=True)
class BlockConv:
    """The ordinary convolution; a family derives its own class."""

    conv: GatheredConv2D
    strides: tuple[int, int]  # rows and columns of a block
    first: tuple[int, int]  # row and column of the first block that is the output's first pixel
    output: tuple[int, ...]
    pixels: int  # of a call of the product
    # Depths of the rows of a block, if each row is a separate product. A row may have fewer taps
    # than another row. Those that it does not have are the first ones of a window, so its product
    # begins after them.
    depths: tuple[int, ...] = ()

    family: ClassVar[str]
    #: The names of the C texts of the driver, and of those that it needs.
    driver: ClassVar[str]
    helpers: ClassVar[tuple[str, ...]]

    @property
    def channels(self) -> int:
        """Channels of a call of the product."""
        return self.strides[1] * self.output[3] if self.depths else self.conv.output_channels

    @property
    def products(self) -> list[tuple[Operand, Operand, Operand]]:
        """The tables of each product."""
        depths = self.depths or (self.conv.depth,)
        return [self.conv.product.tables(self.channels, depth) for depth in depths]

    @property
    def tables(self) -> tuple[Operand, ...]:
        """Weights, scaling and limits of all products."""
        weights, scaling, limits = zip(*self.products, strict=True)
        return _joined(weights), _joined(scaling), limits[0]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that the driver reads; its C text says what they are."""
        conv, w = self.conv, self.conv.window
        blocks = w.output_width, w.output_height * w.output_width, self.pixels
        product = (
            (conv.depth, int(conv.is_gathered)) if self.depths else (self.channels, conv.depth)
        )
        rows = (
            number
            for depth, (weights, scaling, _) in zip(self.depths, self.products, strict=False)
            for number in (depth, weights.elements, scaling.elements)
        )
        return *blocks, *product, *self.strides, *self.first, *self.output[1:], *rows

    @property
    def name(self) -> str:
        conv, depths = self.conv, f"_d{label(self.depths)}" if self.depths else ""
        return (
            f"transpose_conv_{conv.window.label}_{conv.input_channels}_to_{label(self.strides)}"
            f"_c{label(self.first)}{depths}_{label(self.output)}_{conv.product.label}"
        )

    @property
    def why(self) -> str:
        what = f"as a convolution by blocks of {label(self.strides)} pixels"
        return f"{self.conv.product.why}, {what}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        w = self.conv.window
        return (
            Operand("image", (w.batch, w.height * w.width * self.conv.input_channels), "int8"),
            *self._constants,
            "border",
            self._numbers,
            Operand("output", (w.batch, math.prod(self.output[1:])), "int8"),
        )

    @property
    def scratch(self) -> tuple[Operand, ...]:
        windows = self.conv.windows(self.pixels)
        if not self.conv.is_gathered:
            windows = replace(windows, shape=(1,))  # not used
        return windows, Operand("tile", (self.pixels * self.channels,), "int8")

    def texts(self, core: str) -> tuple[str, ...]:
        product = self.conv.product.function
        return (
            *self.conv.texts(core),
            *map(shared_text, self.helpers),
            replaced(family_text(self.family, self.driver), ("PRODUCT", product, 2)),
        )

    def drive(self, c: Driver) -> None:
        image, *_, output = (one for one in self.parameters if isinstance(one, Operand))
        with c.loop("batch", self.conv.window.batch) as n:
            c.call(
                f"{self.driver}_by_{self.conv.product.function}",
                image.at(n),
                *(one.at() for one in self._constants),
                *("border", self._numbers.at(), output.at(n)),
                *(one.at() for one in self.scratch),
            )

    @property
    def _constants(self) -> tuple[Operand, ...]:
        return Operand("geometry", (self.conv.geometry.size,), "int32"), *self.tables

    @property
    def _numbers(self) -> Operand:
        return Operand("numbers", (len(self.numbers),), "int32")


def _joined(tables: Sequence[Operand]) -> Operand:
    """A table with the tables of all products."""
    return replace(tables[0], shape=(sum(one.elements for one in tables),))


def as_convolution(
    call: KernelCall,
) -> tuple[TransposeConv2D, ConvolutionTables, tuple[int, int]] | str:
    """The portable kernel, the ordinary convolution, and ``BlockConv.first``; or why not.

    The outputs of the convolution are [row of a block, column of a block, output].
    """
    kernel = call.kernel
    assert isinstance(kernel, TransposeConv2D)
    ones, times = (1, 1), math.prod(kernel.strides)
    taps, pixels, borders, first = (
        (rows, columns)
        for rows, columns in zip(*(_along(kernel, axis) for axis in (0, 1)), strict=True)
    )
    if min(borders) < 0:
        return "the padding is larger than the window"
    batch, height, width, inputs = kernel.image
    window = Window(batch, height, width, *pixels, taps, ones, ones, *borders)
    tables, numbers = constants(call), scalars(call)
    border = numbers["input_zero_point"]
    weights = _by_blocks(tables["weights"], taps, kernel.strides)
    bias, multiplier, shift = (
        np.tile(tables[name], times) for name in ("bias", "multiplier", "shift")
    )
    bias = fold_input_offset(bias, weights, border)
    scales = multiplier, shift, border, numbers["output_zero_point"], limits_of(call)
    return kernel, ConvolutionTables(window, inputs, weights, bias, *scales), first


def _along(kernel: TransposeConv2D, axis: int) -> tuple[int, int, int, int]:
    """Taps, pixels, the border before them, and where the output begins in its first block."""
    stride, padding = kernel.strides[axis], kernel.padding[axis]
    taps = -(-kernel.kernel[axis] // stride)
    first, last = padding // stride, (kernel.output[1 + axis] - 1 + padding) // stride
    return taps, last - first + 1, taps - 1 - first, padding % stride


def _by_blocks(weights: Array, taps: tuple[int, int], strides: tuple[int, int]) -> Array:
    outputs, rows, columns, inputs = weights.shape
    missing = taps[0] * strides[0] - rows, taps[1] * strides[1] - columns
    filled = np.pad(weights, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    # Row r + stride * j of a window is row r of a block, at tap taps - 1 - j.
    split = filled.reshape(outputs, taps[0], strides[0], taps[1], strides[1], inputs)
    turned = split[:, ::-1, :, ::-1].transpose(2, 4, 0, 1, 3, 5)
    return np.ascontiguousarray(turned).reshape(-1, *taps, inputs)


def block_conv_call(
    call: KernelCall, kernel: BlockConv, tables: Iterable[ConstantArgument], border: int
) -> KernelCall:
    """The call instead of the portable one; ``tables`` are weights, scaling and limits."""
    numbers = ConstantArgument("numbers", np.array(kernel.numbers, dtype=np.int32))
    return windows_call(call, kernel, kernel.conv.geometry, tables, border, numbers)
