"""CONV_2D as a matrix product of what windows see, by a micro-kernel that a family brings along.

Blocks of output pixels are gathered (``c/utvm_windows.h``) and multiplied with all channels; that
product is what the PrimFunc's tiles are tensorized with. Where a window is one pixel, in the
image's order, the image itself is multiplied. Of several groups of channels each is done so: to
what gathers, such an image has that many times the pixels, every so many of which a group sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

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
        """Weights and two more."""

    def weight(self, buffers: Buffers, o: Any, k: Any, depth: int) -> Any:
        """A weight as int32."""


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

    def prim_func(self) -> Any:
        return self._gathered() if self.is_gathered else self._in_place()

    def schedule(self, sch: Any, core: str) -> str:
        texts = list(self.product.texts())
        if self.is_gathered:
            texts += [shared_text("utvm_bytes"), shared_text("utvm_windows")]
        if self.groups > 1:
            texts.append(shared_text("utvm_put_pixels"))
        import_c(sch, *texts)
        for number, (_, _, pixels) in enumerate(self._blocks):
            source, sums, output = self._tile(number, pixels)
            reads = [source, *self._tile_tables]
            tensorize(
                sch,
                f"tile_{number}",
                reads,
                [sums, output],
                partial(self._meaning, number, pixels),
                partial(self._call, [*reads, output], pixels),
            )
        where = f"{self.pixels} gathered at a time" if self.is_gathered else "pixels read in place"
        where += f" for each of {self.groups} groups" if self.groups > 1 else ""
        return f"{self.product.why}, {where}"

    def _in_place(self) -> Any:
        """All pixels in one call."""
        ((_, _, pixels),) = self._blocks
        source, sums, output = self._tile(0, pixels)

        def body(buffers: Buffers) -> None:
            with script.grid(1, 1) as (i, j), script.sblock("tile_0"):
                script.axis.remap("SS", [i, j])
                script.reads(*(one.region(buffers) for one in (source, *self._tables)))
                script.writes(sums.region(buffers), output.region(buffers))
                self._meaning(0, pixels, buffers)

        return prim_func([source, *self._tables, output], [sums], body)

    def _gathered(self) -> Any:
        w = self.window
        outputs = w.output_height * w.output_width
        channels, made = self.groups * self.input_channels, self.groups * self.output_channels
        image = Operand("image", (w.batch, w.height, w.width, channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        output = Operand("output", (w.batch, outputs, made), "int8")
        tiles = [self._tile(block, pixels) for block, (_, _, pixels) in enumerate(self._blocks)]

        def gather(buffers: Buffers, number: int, loops: list[Any]) -> None:
            first, _, pixels = self._blocks[number]
            source = tiles[number][0]
            with script.sblock(f"gather_{number}"):
                vn, vb, *group = script.axis.remap("S" * len(loops), loops)
                whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                script.reads(buffers["image"][whole], geometry.region(buffers))
                script.writes(source.region(buffers))
                place = group[0] * self.input_channels if group else 0
                start = script.address_of(buffers["image"][vn, 0, 0, place])
                numbers = (vb * pixels + first, pixels, buffers["border"], geometry.start(buffers))
                call = extern("utvm_windows_gather", start, source.start(buffers), *numbers)
                script.evaluate(call)

        def body(buffers: Buffers) -> None:
            for number, (first, count, pixels) in enumerate(self._blocks):
                source, sums, _ = tiles[number]
                with script.grid(w.batch, count) as (n, b):
                    if self.groups > 1:
                        # All groups of some pixels are done before the next pixels.
                        with script.grid(self.groups) as g:
                            gather(buffers, number, [n, b, g])
                            self._multiply(buffers, number, [n, b, g])
                            self._put(buffers, number, [n, b, g])
                        continue
                    gather(buffers, number, [n, b])
                    with script.sblock(f"tile_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        start = vb * pixels + first
                        script.reads(*(one.region(buffers) for one in (source, *self._tables)))
                        script.writes(
                            sums.region(buffers),
                            buffers["output"][vn, start : start + pixels, 0 : self.output_channels],
                        )
                        self._meaning(number, pixels, buffers, (vn,), start)

        parts = self._parts if self.groups > 1 else []
        return prim_func(
            [image, geometry, *self._tables, "border", output],
            [*(operand for source, sums, _ in tiles for operand in (source, sums)), *parts],
            body,
        )

    def _multiply(self, buffers: Buffers, number: int, loops: list[Any]) -> None:
        """The tile of a group, into a place of its own."""
        _, _, pixels = self._blocks[number]
        source, sums, _ = self._tile(number, pixels)
        part, limits = self._parts[number], self._tables[2]
        with script.sblock(f"tile_{number}"):
            _, _, group = script.axis.remap("SSS", loops)
            firsts = {one.name: group * one.shape[0] for one in self._tile_tables[:2]}
            of_group = (
                buffers[one.name][firsts[one.name] : firsts[one.name] + one.shape[0]]
                for one in self._tile_tables[:2]
            )
            script.reads(source.region(buffers), *of_group, limits.region(buffers))
            script.writes(sums.region(buffers), part.region(buffers))
            tables = {name: _From(buffers[name], first) for name, first in firsts.items()}
            own = {**buffers, **tables, "output": buffers[part.name]}
            self._meaning(number, pixels, own)

    def _put(self, buffers: Buffers, number: int, loops: list[Any]) -> None:
        """What was made of a group where it belongs."""
        first, _, pixels = self._blocks[number]
        part, channels = self._parts[number], self.groups * self.output_channels
        with script.sblock(f"put_{number}"):
            vn, vb, group = script.axis.remap("SSS", loops)
            start = vb * pixels + first
            script.reads(part.region(buffers))
            script.writes(buffers["output"][vn, start : start + pixels, 0:channels])
            place = buffers["output"][vn, start, group * self.output_channels]
            numbers = 1, pixels, self.output_channels, channels, 0
            to = script.address_of(place)
            script.evaluate(extern("utvm_put_pixels", to, part.start(buffers), *numbers))

    @property
    def _parts(self) -> list[Operand]:
        """What is made of a group's pixels, block by block."""
        return [
            Operand(f"part_{number}", (pixels, self.output_channels), "int8")
            for number, (_, _, pixels) in enumerate(self._blocks)
        ]

    def _call(self, operands: Sequence[Operand], pixels: int, buffers: Buffers) -> Any:
        starts = [one.start(buffers) for one in operands]
        numbers = (pixels, self.output_channels, self.depth, self.depth)
        return extern(self.product.function, *starts, *numbers)

    @property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """First pixel, how many blocks, pixels of each."""
        outputs = self.window.output_height * self.window.output_width
        if not self.is_gathered:
            return [(0, 1, self.window.batch * outputs)]
        pixels = min(self.pixels, outputs)
        whole, rest = divmod(outputs, pixels)
        blocks = [(0, whole, pixels)]
        return [*blocks, (whole * pixels, 1, rest)] if rest else blocks

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand]:
        *of_groups, limits = self._tile_tables
        weights, scaling = (replace(o, shape=(self.groups * o.shape[0],)) for o in of_groups)
        return weights, scaling, limits

    @property
    def _tile_tables(self) -> tuple[Operand, Operand, Operand]:
        """Of one group."""
        return self.product.tables(self.output_channels, self.depth)

    def _tile(self, block: int, pixels: int) -> tuple[Operand, Operand, Operand]:
        return (
            Operand(f"windows_{block}", (pixels, self.depth), "int8"),
            Operand(f"sums_{block}", (pixels, self.output_channels), "int32"),
            Operand("output", (pixels, self.output_channels), "int8"),
        )

    def _meaning(
        self,
        number: int,
        pixels: int,
        buffers: Buffers,
        image: tuple[Any, ...] = (),
        start: Any = 0,
    ) -> None:
        """What a tile does; its output's first pixel is ``start`` of ``image``."""
        source, sums = buffers[f"windows_{number}"], buffers[f"sums_{number}"]
        tile = [("p", pixels, "S"), ("o", self.output_channels, "S")]

        def bias(p: Any, o: Any) -> None:
            script.buffer_store(sums, self.product.bias(buffers, o), [p, o])

        def product(p: Any, o: Any, k: Any) -> None:
            weight = self.product.weight(buffers, o, k, self.depth)
            total = sums[p, o] + source[p, k].astype("int32") * weight
            script.buffer_store(sums, total, [p, o])

        def requantize(p: Any, o: Any) -> None:
            scaled = self.product.scaled(buffers, sums[p, o], o)
            script.buffer_store(buffers["output"], scaled, [*image, start + p, o])

        block(f"bias_{number}", tile, bias)
        block(f"product_{number}", [*tile, ("k", self.depth, "R")], product)
        block(f"requantize_{number}", tile, requantize)


class _From:
    """A buffer of one dimension from an element on."""

    def __init__(self, buffer: Any, first: Any) -> None:
        self._buffer, self._first = buffer, first

    def __getitem__(self, place: Any) -> Any:
        return self._buffer[self._first + place]


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
