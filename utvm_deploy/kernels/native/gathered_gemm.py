"""CONV_2D as a matrix product of what windows see, by a micro-kernel that a family brings along.

A block of output pixels is gathered (``c/utvm_windows.h``) and multiplied with all channels. Where
a window is one pixel, in the image's order, the image itself is multiplied. Of several groups of
channels each is done so. For gathering, such an image has one pixel for each group of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.micro_kernel import MicroKernel

#: Windows of so many bytes are gathered at a time, unless those of one tile alone need more.
_WINDOWS_BYTES = 2048
_MOST_PIXELS = 24
#: What the function of a ``Product`` takes, where its tables are weights, scaling and limits.
PRODUCT_PARAMETERS = (
    "const int8_t *pixels",
    "const int8_t *weights",
    "const int32_t *scaling",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t count",
    "int32_t channels",
    "int32_t depth",
    "int32_t pitch",
)


class Product(MicroKernel, Protocol):
    """A micro-kernel of the matrix product.

    The function takes pixels, three tables, the output, then the numbers of pixels and channels,
    the depth, and the bytes from pixel to pixel.
    """

    @property
    def pixels(self) -> int:
        """Pixels of a tile."""

    @property
    def depth_step(self) -> int:
        """Depths that are multiples of this are done best; gathered windows are filled up to it."""

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        """Weights, scaling of each channel, limits: their sizes."""


@dataclass(frozen=True)
class GatheredConv2D:
    """Shape parameters; ``pixels`` are gathered at a time."""

    window: Window
    input_channels: int  # of a group, as the outputs
    output_channels: int
    product: Product
    pixels: int
    # A fully connected layer: the pixels are the rows of its batch.
    is_dense: bool = False
    groups: int = 1

    @property
    def name(self) -> str:
        if self.is_dense:
            batch = f"_n{self.window.batch}" if self.window.batch != 1 else ""
            channels = f"{self.input_channels}x{self.output_channels}"
            return f"fully_connected{batch}_{channels}_{self.product.label}"
        channels = f"{self.groups * self.input_channels}x{self.groups * self.output_channels}"
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        return f"conv2d_{self.window.label}_{channels}{groups}_{self.product.label}"

    @property
    def depth(self) -> int:
        """Products of one output, those with the weights that fill it up included."""
        needed = int(np.prod(self.window.kernel)) * self.input_channels
        step = self.product.depth_step if self.is_gathered else 1
        return -(-needed // step) * step

    @property
    def is_gathered(self) -> bool:
        """Whether windows are copied; otherwise a window is a pixel of the image, in its order."""
        w = self.window
        is_plain = w.kernel == w.strides == (1, 1) and not w.is_padded
        return not is_plain or self.groups > 1

    @property
    def geometry(self) -> Array:
        """``struct utvm_windows``."""
        w, groups = self.window, self.groups
        values = (w.height, w.width * groups, self.input_channels, w.output_width, *w.kernel)
        apart = w.dilations[1] * groups if w.kernel[1] > 1 else 1
        steps = (w.strides[0], w.strides[1] * groups, w.dilations[0], apart)
        return np.array([*values, *steps, w.top, w.left * groups, self.depth], dtype=np.int32)

    @property
    def why(self) -> str:
        where = f"{self.pixels} gathered at a time" if self.is_gathered else "pixels read in place"
        where += f" for each of {self.groups} groups" if self.groups > 1 else ""
        return f"{self.product.why}, {where}"

    @property
    def lag(self) -> Lag | None:
        if not self.is_gathered:
            return None  # all pixels are read for each group of channels
        sizes = self.groups * self.input_channels, self.groups * self.output_channels
        # Each group of some pixels reads, after outputs of another were written.
        return lag_by_pixels(self.window, *sizes, self.pixels, mixed=self.groups > 1)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        if not self.is_gathered:
            return self._image, *self.tables, self._output
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        return self._image, geometry, *self.tables, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        if not self.is_gathered:
            return ()
        return (self._windows, self._part) if self.groups > 1 else (self._windows,)

    def texts(self, core: str) -> tuple[str, ...]:
        texts = self.product.texts()
        if self.is_gathered:
            texts = *texts, shared_text("utvm_bytes"), shared_text("utvm_windows")
        return (*texts, shared_text("utvm_put_pixels")) if self.groups > 1 else texts

    def drive(self, c: Driver) -> None:
        if not self.is_gathered:
            self._multiply(c, self._image, self._output, self._pixels)
            return
        for first, count, pixels in self._blocks:
            with c.loop("batch", self.window.batch) as n, c.loop("block", count) as block:
                self._do_block(c, n, block * pixels + first, pixels)

    def _do_block(self, c: Driver, n: Index, first: Index, pixels: int) -> None:
        """Gather and multiply so many pixels of an image; of each group before the next pixels."""
        image, output = self._image, self._output
        windows, part = self._windows, self._part
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        with c.loop("group", self.groups) as group:
            source = image.at(n * image.stride(0) + group * self.input_channels)
            numbers = first, pixels, "border", geometry.at()
            c.call("utvm_windows_gather", source, windows.at(), *numbers)
            place = n * output.stride(0) + first * output.stride(1) + group * self.output_channels
            if self.groups == 1:
                self._multiply(c, windows, output, pixels, place=place)
                return
            self._multiply(c, windows, part, pixels, group=group)
            sizes = 1, pixels, self.output_channels, output.stride(1), 0
            c.call("utvm_put_pixels", output.at(place), part.at(), *sizes)

    def _multiply(
        self,
        c: Driver,
        source: Operand,
        target: Operand,
        pixels: int,
        *,
        place: Index | int = 0,
        group: Index | int = 0,
    ) -> None:
        """Multiply so many pixels with the weights of a group."""
        *of_group, limits = self.product.tables(self.output_channels, self.depth)
        tables = (one.at(group * one.elements) for one in of_group)
        numbers = (pixels, self.output_channels, self.depth, self.depth)
        places = source.at(), *tables, limits.at(), target.at(place)
        c.call(self.product.function, *places, *numbers)

    @property
    def tables(self) -> tuple[Operand, Operand, Operand]:
        """Weights and scaling of all groups, and limits."""
        *of_group, limits = self.product.tables(self.output_channels, self.depth)
        weights, scaling = (replace(o, shape=(self.groups * o.elements,)) for o in of_group)
        return weights, scaling, limits

    @property
    def _pixels(self) -> int:
        """Of all outputs."""
        return self.window.batch * self.window.output_height * self.window.output_width

    @property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """Of an image's pixels: the first, how many blocks, the pixels of each."""
        whole, rest = divmod(self._pixels // self.window.batch, self._block)
        blocks = [(0, whole, self._block), (whole * self._block, 1, rest)]
        return blocks if rest else blocks[:1]

    @property
    def _block(self) -> int:
        """Pixels that are gathered at a time."""
        return min(self.pixels, self._pixels // self.window.batch)

    @property
    def _image(self) -> Operand:
        if not self.is_gathered:
            return Operand("image", (self._pixels, self.depth), "int8")
        w = self.window
        return Operand(
            "image", (w.batch, w.height, w.width, self.groups * self.input_channels), "int8"
        )

    @property
    def _output(self) -> Operand:
        w, channels = self.window, self.groups * self.output_channels
        return Operand("output", (w.batch, self._pixels // w.batch, channels), "int8")

    @property
    def _windows(self) -> Operand:
        return Operand("windows", (self._block, self.depth), "int8")

    @property
    def _part(self) -> Operand:
        """What is made of a group of some pixels."""
        return Operand("part", (self._block, self.output_channels), "int8")


def gathered_conv2d_call(
    call: KernelCall, kernel: GatheredConv2D, tables: Sequence[ConstantArgument], border: int
) -> KernelCall:
    """The call instead of the generic one; ``tables`` as the product wants them."""
    arguments: list[Argument] = list(tables)
    if kernel.is_gathered:
        geometry = ConstantArgument("geometry", kernel.geometry)
        arguments = [geometry, *arguments, ScalarArgument("border", border)]
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    return replace(call, kernel=kernel, arguments=(call.arguments[0], *arguments, output))


def gathered(
    window: Window,
    channels: tuple[int, int],
    product: Product,
    pixels: int | None,
    groups: int = 1,
) -> GatheredConv2D:
    """The kernel; ``channels``: of a group's input and output, ``pixels``: None for a default."""
    kernel = GatheredConv2D(window, *channels, product, 0, groups=groups)
    if not kernel.is_gathered:
        return kernel
    if pixels is None:
        tiles = _WINDOWS_BYTES // (kernel.depth * product.pixels)
        pixels = min(
            max(tiles, 1) * product.pixels, _MOST_PIXELS // product.pixels * product.pixels
        )
    return replace(kernel, pixels=pixels)


def gathered_dense(batch: int, inputs: int, outputs: int, product: Product) -> GatheredConv2D:
    """A fully connected layer: every row of the batch is a pixel, read in place."""
    window = Window(batch, 1, 1, 1, 1, (1, 1), (1, 1), (1, 1), 0, 0)
    return GatheredConv2D(window, inputs, outputs, product, 0, is_dense=True)
