"""CONV_2D as a matrix product of what windows see, by a micro-kernel that a family brings along.

Blocks of output pixels are gathered (``c/utvm_windows.h``) and multiplied with all channels; that
product is what the PrimFunc's tiles are tensorized with. Where a window is one pixel, in the
image's order, the image itself is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.micro.kernel import MicroKernel
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    script,
    tensorize,
)
from utvm_deploy.kernels.window import Window

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
    input_channels: int
    output_channels: int
    product: Product
    pixels: int
    # A fully connected layer: the pixels are the rows of its batch.
    is_dense: bool = False

    @property
    def name(self) -> str:
        if self.is_dense:
            batch = f"_n{self.window.batch}" if self.window.batch != 1 else ""
            channels = f"{self.input_channels}x{self.output_channels}"
            return f"fully_connected{batch}_{channels}_{self.product.label}"
        channels = f"{self.input_channels}x{self.output_channels}"
        return f"conv2d_{self.window.label}_{channels}_{self.product.label}"

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
        return w.is_padded or w.kernel != (1, 1) or w.strides != (1, 1)

    @property
    def geometry(self) -> Array:
        """``struct utvm_windows``."""
        w = self.window
        values = (w.height, w.width, self.input_channels, w.output_width, *w.kernel)
        places = (*w.strides, *w.dilations, w.top, w.left)
        return np.array([*values, *places, self.depth], dtype=np.int32)

    def prim_func(self) -> Any:
        return self._gathered() if self.is_gathered else self._in_place()

    def schedule(self, sch: Any, core: str) -> str:
        texts = list(self.product.texts())
        if self.is_gathered:
            texts += [shared_text("utvm_bytes"), shared_text("utvm_windows")]
        import_c(sch, *texts)
        for number, (_, _, pixels) in enumerate(self._blocks):
            source, sums, output = self._tile(number, pixels)
            reads = [source, *self._tables]
            tensorize(
                sch,
                f"tile_{number}",
                reads,
                [sums, output],
                partial(self._meaning, number, pixels),
                partial(self._call, [*reads, output], pixels),
            )
        where = f"{self.pixels} gathered at a time" if self.is_gathered else "pixels read in place"
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
        image = Operand("image", (w.batch, w.height, w.width, self.input_channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        output = Operand("output", (w.batch, outputs, self.output_channels), "int8")
        tiles = [self._tile(block, pixels) for block, (_, _, pixels) in enumerate(self._blocks)]

        def gather(buffers: Buffers, number: int, n: Any, b: Any) -> None:
            first, _, pixels = self._blocks[number]
            source = tiles[number][0]
            with script.sblock(f"gather_{number}"):
                vn, vb = script.axis.remap("SS", [n, b])
                whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                script.reads(buffers["image"][whole], geometry.region(buffers))
                script.writes(source.region(buffers))
                start = script.address_of(buffers["image"][vn, 0, 0, 0])
                numbers = (vb * pixels + first, pixels, buffers["border"], geometry.start(buffers))
                call = extern("utvm_windows_gather", start, source.start(buffers), *numbers)
                script.evaluate(call)

        def body(buffers: Buffers) -> None:
            for number, (first, count, pixels) in enumerate(self._blocks):
                source, sums, _ = tiles[number]
                with script.grid(w.batch, count) as (n, b):
                    gather(buffers, number, n, b)
                    with script.sblock(f"tile_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        start = vb * pixels + first
                        script.reads(*(one.region(buffers) for one in (source, *self._tables)))
                        script.writes(
                            sums.region(buffers),
                            buffers["output"][vn, start : start + pixels, 0 : self.output_channels],
                        )
                        self._meaning(number, pixels, buffers, (vn,), start)

        return prim_func(
            [image, geometry, *self._tables, "border", output],
            [operand for source, sums, _ in tiles for operand in (source, sums)],
            body,
        )

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
    window: Window, channels: tuple[int, int], product: Product, pixels: int | None
) -> GatheredConv2D:
    """The kernel; ``channels``: of input and output, ``pixels``: None for a good default."""
    kernel = GatheredConv2D(window, *channels, product, 0)
    if not kernel.is_gathered:
        return kernel
    if pixels is None:
        groups = _WINDOWS_BYTES // (kernel.depth * product.pixels)
        pixels = min(
            max(groups, 1) * product.pixels, _MOST_PIXELS // product.pixels * product.pixels
        )
    return replace(kernel, pixels=pixels)


def gathered_dense(batch: int, inputs: int, outputs: int, product: Product) -> GatheredConv2D:
    """A fully connected layer: every row of the batch is a pixel, read in place."""
    window = Window(batch, 1, 1, 1, 1, (1, 1), (1, 1), (1, 1), 0, 0)
    return GatheredConv2D(window, inputs, outputs, product, 0, is_dense=True)
