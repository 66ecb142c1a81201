"""CONV_2D as a matrix product (im2col), by a micro-kernel of the family.

The windows of a block of output pixels are gathered into scratch (``c/utvm_windows.h``) and
multiplied with the weights of all channels. Where each window is one pixel, in the image's order,
nothing is gathered: the image itself is multiplied.

With several groups of channels, each group is multiplied separately. The outputs of a block are
then copied from scratch to their places between those of other groups. To gather a group, the image
counts as one with a pixel for each group of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import bytes_texts, replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Address, Driver, Index, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.reading import Reading
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.layer_tables import DenseTables
from utvm_deploy.kernels.native.micro_kernel import (
    MicroKernel,
    equal_blocks,
    line_of,
    table_arguments,
    windows_call,
)

#: Bytes of the windows that are gathered at a time, unless those of one tile need more.
_WINDOWS_BYTES = 2048
MOST_PIXELS = 24
#: What the function of a ``Product`` takes, where its tables are weights, scaling and limits.
PRODUCT_PARAMETERS = """
const int8_t *pixels, const int8_t *weights, const int32_t *scaling, const int32_t *limits,
int8_t *output, int32_t count, int32_t channels, int32_t depth, int32_t pitch
"""


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

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """The tables of weights and scaling.

        ``weights`` are [channels, depth], ``rows`` [numbers that scale a channel, channels].
        """


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
    #: Rows of windows are copied by code for their length, up to these bytes.
    most_run: int = 0
    #: Channels whose weights of int4 are unpacked at a time; 0: weights are int8.
    block: int = 0

    @property
    def name(self) -> str:
        return f"{self._name}{'_int4' if self.block else ''}"

    @property
    def _name(self) -> str:
        if self.is_dense:
            batch = f"_n{self.window.batch}" if self.window.batch != 1 else ""
            channels = f"{self.input_channels}x{self.output_channels}"
            return f"fully_connected{batch}_{channels}_{self.product.label}"
        channels = f"{self.groups * self.input_channels}x{self.groups * self.output_channels}"
        groups = f"_g{self.groups}" if self.groups > 1 else ""
        return f"conv2d_{self.window.label}_{channels}{groups}_{self.product.label}"

    @property
    def reading(self) -> Reading:
        w = self.window
        rows = 0 if self.is_dense else w.batch * w.output_height * w.output_width * w.kernel[0]
        unpacked = 0
        if self.block:
            blocks = w.batch * -(-self._pixels // w.batch // self._block)
            unpacked = blocks * 2 * self.tables[0].elements
        return Reading(gathered_rows=rows, windows_per_column=1.0, unpacked=unpacked)

    @property
    def estimated_cycles(self) -> float:
        """About what a call takes without unpacking, by its product; 0: that does not say."""
        of_pixel = getattr(self.product, "cycles_of_pixel", None)
        if of_pixel is None:
            return 0.0
        gathered = self.depth if self.is_gathered else 0
        each: float = of_pixel(self.output_channels, self.depth) + gathered
        return self._pixels * self.groups * each

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
        is_filled = self.groups > 1 and self.input_channels % self.product.depth_step != 0
        return not is_plain or is_filled

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
        how = f"{self.pixels} pixels gathered at a time"
        where = how if self.is_gathered else "pixels read in place"
        where += f" for each of {self.groups} groups" if self.groups > 1 else ""
        where += f", weights of {self.block} channels unpacked at a time" if self.block else ""
        return f"{self.product.why}, {where}"

    @property
    def lag(self) -> Lag | None:
        if not self._in_blocks:
            return None  # the micro-kernel reads all pixels for each of its groups of channels
        sizes = self.groups * self.input_channels, self.groups * self.output_channels
        # Each group of some pixels reads, after outputs of another were written.
        mixed = self.groups > 1 or self.block > 0
        return lag_by_pixels(self.window, *sizes, self.pixels, mixed=mixed)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        if not self.is_gathered:
            return self._image, *self.tables, self._output
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        return self._image, geometry, *self.tables, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        windows = (self.windows(self._block),) if self.is_gathered else ()
        if self.block:
            return *windows, self._part, self._line
        return (*windows, self._part) if self.groups > 1 else windows

    def texts(self, core: str) -> tuple[str, ...]:
        texts = self.product.texts(core)
        if self.is_gathered:
            texts = *texts, *bytes_texts(core), *windows_texts(self._own_run)
        if self.block:
            texts = *texts, shared_text("utvm_unpack_halves")
        is_put = self.groups > 1 or self.block
        return (*texts, shared_text("utvm_put_pixels")) if is_put else texts

    def drive(self, c: Driver) -> None:
        if not self._in_blocks:
            self._multiply(c, self._image.at(), self._output.at(), self._pixels)
            return
        for first, count, pixels in equal_blocks(self._pixels // self.window.batch, self.pixels):
            with c.loop("batch", self.window.batch) as n, c.loop("block", count) as block:
                self._do_block(c, n, block * pixels + first, pixels)

    def _do_block(self, c: Driver, n: Index, first: Index, pixels: int) -> None:
        """Compute outputs of ``pixels`` pixels of an image, group by group."""
        image, output = self._image, self._output
        with c.loop("group", self.groups) as group:
            of_group = group * self.input_channels
            if self.is_gathered:
                geometry = Operand("geometry", (self.geometry.size,), "int32")
                source, pitch = self.windows(self._block).at(), self.depth
                numbers = first, pixels, "border", geometry.at()
                gather = f"utvm_windows_gather{self._own_run or ''}"
                c.call(gather, image.at(n, 0, 0, of_group), source, *numbers)
            else:
                pitch = image.stride(2)
                source = image.at(n, 0, 0, of_group + first * pitch)
            target = output.at(n, first, group * self.output_channels)
            if self.block:
                self._multiply_packed(c, source, (n, first), pixels, pitch)
                return
            if self.groups == 1:
                self._multiply(c, source, target, pixels)
                return
            self._multiply(c, source, self._part.at(), pixels, pitch=pitch, group=group)
            sizes = 1, pixels, self.output_channels, output.stride(1), 0
            c.call("utvm_put_pixels", target, self._part.at(), *sizes)

    def _multiply(
        self,
        c: Driver,
        source: Address,
        target: Address,
        pixels: int,
        *,
        pitch: int = 0,
        group: Index | int = 0,
    ) -> None:
        """Multiply pixels, ``pitch`` bytes apart (0: the depth), with the weights of a group."""
        *of_group, limits = self.product.tables(self.output_channels, self.depth)
        tables = (one.at(group * one.elements) for one in of_group)
        numbers = (pixels, self.output_channels, self.depth, pitch or self.depth)
        c.call(self.product.function, source, *tables, limits.at(), target, *numbers)

    def _multiply_packed(
        self, c: Driver, source: Address, place: tuple[Index, Index], pixels: int, pitch: int
    ) -> None:
        """Multiply pixels with the weights of some channels after the other; ``place``: outputs."""
        weights, scaling, limits = self.tables
        of_block, scaling_of_block, _ = self.product.tables(self.block, self.depth)
        line, part, output = line_of(self._line), self._part.at(), self._output
        with c.loop("some", self.output_channels // self.block) as number:
            packed = weights.at(number * (of_block.elements // 2))
            c.call("utvm_unpack_halves", packed, line, of_block.elements)
            tables = line, scaling.at(number * scaling_of_block.elements), limits.at()
            sizes = pixels, self.block, self.depth, pitch
            c.call(self.product.function, source, *tables, part, *sizes)
            target = output.at(*place, number * self.block)
            c.call("utvm_put_pixels", target, part, 1, pixels, self.block, output.stride(1), 0)

    @property
    def tables(self) -> tuple[Operand, Operand, Operand]:
        """Weights and scaling of all groups, and limits."""
        *of_group, limits = self.product.tables(self.output_channels, self.depth)
        if self.block:
            weights, scaling = of_group
            return replace(weights, shape=(weights.elements // 2,)), scaling, limits
        weights, scaling = (replace(o, shape=(self.groups * o.elements,)) for o in of_group)
        return weights, scaling, limits

    @property
    def _own_run(self) -> int:
        """Bytes of a row of a window, if there is code for this length; else 0."""
        w = self.window
        run = w.kernel[1] * self.input_channels
        is_whole = w.kernel[1] == 1 or w.dilations[1] == self.groups == 1
        return run if is_whole and run <= self.most_run else 0

    @property
    def _in_blocks(self) -> bool:
        """Whether outputs are computed in blocks of pixels, by way of scratch."""
        return self.is_gathered or self.groups > 1 or self.block > 0

    @property
    def _pixels(self) -> int:
        """Pixels of all outputs."""
        return self.window.batch * self.window.output_height * self.window.output_width

    @property
    def _block(self) -> int:
        """Pixels that are gathered at a time."""
        return min(self.pixels, self._pixels // self.window.batch)

    @property
    def _image(self) -> Operand:
        if not self._in_blocks:
            return Operand("image", (self._pixels, self.depth), "int8")
        w = self.window
        return Operand(
            "image", (w.batch, w.height, w.width, self.groups * self.input_channels), "int8"
        )

    @property
    def _output(self) -> Operand:
        w, channels = self.window, self.groups * self.output_channels
        return Operand("output", (w.batch, self._pixels // w.batch, channels), "int8")

    def windows(self, pixels: int) -> Operand:
        """Scratch for the gathered windows of ``pixels`` pixels."""
        return Operand("windows", (pixels, self.depth), "int8")

    @property
    def _part(self) -> Operand:
        """The outputs of a block for one group, or for the channels that are unpacked."""
        return Operand("part", (self._block, self.block or self.output_channels), "int8")

    @property
    def _line(self) -> Operand:
        """The unpacked weights of some channels, in words."""
        weights, *_ = self.product.tables(self.block, self.depth)
        return Operand("line", (weights.elements // 4,), "int32")


def gathered_conv2d_call(
    call: KernelCall,
    kernel: GatheredConv2D,
    weights: Array,
    rows: Array,
    limits: Sequence[int],
    border: int = 0,
) -> KernelCall:
    """The call instead of the generic one.

    ``weights``: of each channel of all groups, ``rows``: as ``Product.pack`` takes them.
    """
    flat = weights.reshape(len(weights), -1)
    filled = np.pad(flat, ((0, 0), (0, kernel.depth - flat.shape[1])))
    of_groups = zip(
        np.split(filled, kernel.groups), np.split(rows, kernel.groups, axis=1), strict=True
    )
    packed = (kernel.product.pack(*one) for one in of_groups)
    tables = table_arguments(packed, limits)
    if kernel.is_gathered:
        return windows_call(call, kernel, kernel.geometry, tables, border)
    return replace(call, kernel=kernel, arguments=(call.arguments[0], *tables, call.arguments[-1]))


def windows_texts(run: int = 0) -> tuple[str, str]:
    """The C that gathers windows; ``run``: the bytes of the rows that it is made for."""
    text = shared_text("utvm_windows_gather")
    if run:
        # A byte may alias any other: two loads in a row wait less than a load before its store.
        pair = "const int8_t b{0} = row[{0}], b{1} = row[{1}]; to[{0}] = b{0}; to[{1}] = b{1};"
        pairs = [pair.format(i, i + 1) for i in range(0, run - 1, 2)]
        last = [f"to[{run - 1}] = row[{run - 1}];"] if run % 2 else []
        copied = "\n".join(("(void)run;", *pairs, *last, f"to += {run};"))
        text = replaced(
            text,
            ("utvm_windows_gather", f"utvm_windows_gather{run}", 1),
            ("utvm_windows_inside", f"utvm_windows_inside{run}", 2),
            ("to = utvm_bytes_copy(to, row, run);", copied, 1),
        )
    return shared_text("utvm_windows"), text


def gathered(
    window: Window,
    channels: tuple[int, int],
    product: Product,
    pixels: int | None,
    groups: int = 1,
) -> GatheredConv2D:
    """The kernel; ``channels``: of a group's input and output.

    ``pixels``: of a block; None for a default.
    """
    kernel = GatheredConv2D(window, *channels, product, 0, groups=groups)
    if not kernel.is_gathered and groups == 1:
        return kernel
    if pixels is None:
        tiles = _WINDOWS_BYTES // (kernel.depth * product.pixels)
        pixels = min(max(tiles, 1) * product.pixels, MOST_PIXELS // product.pixels * product.pixels)
    return replace(kernel, pixels=pixels)


def gathered_dense_call(call: KernelCall, layer: DenseTables, product: Product) -> KernelCall:
    """The call of a fully connected layer: every row of the batch is a pixel, read in place.

    One scale is behind the limits; several are rows of the product's table.
    """
    outputs, inputs = layer.weights.shape
    is_one, scales = len(layer.scales) == 1, layer.scales
    rows = [layer.bias] if is_one else [layer.bias, *np.array(scales).T]
    limits = [*layer.limits, *scales[0]] if is_one else layer.limits
    window = Window(layer.batch, 1, 1, 1, 1, (1, 1), (1, 1), (1, 1), 0, 0)
    kernel = GatheredConv2D(window, inputs, outputs, product, 0, is_dense=True)
    return gathered_conv2d_call(call, kernel, layer.weights, np.array(rows, dtype=np.int32), limits)
