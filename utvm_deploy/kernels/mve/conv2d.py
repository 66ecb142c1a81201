"""CONV_2D for cores with Helium: gathered windows, or the image itself where a window is a pixel.

Blocks of output pixels are gathered (``utvm_mve_gather``) and multiplied with all channels
(``gemm.py``); the second is what the PrimFunc's tile is tensorized with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from utvm_deploy.candidate import Candidate
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.dsp.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    pure,
    script,
    tensorize,
)
from utvm_deploy.kernels.mve import gemm
from utvm_deploy.kernels.mve.code import c_body
from utvm_deploy.kernels.window import Window

#: Windows of so many bytes are gathered at a time, unless three pixels alone need more.
_PATCHES_BYTES = 2048
_MOST_PIXELS = 24


@dataclass(frozen=True)
class MveConv2D:
    """Shape parameters; ``pixels`` are gathered at a time."""

    window: Window
    input_channels: int
    output_channels: int
    pixels: int
    has_left: bool  # a channel's scale needs a left shift

    @property
    def name(self) -> str:
        left = "_left" if self.has_left else ""
        return f"conv2d_{self.window.label}_{self.input_channels}x{self.output_channels}_mve{left}"

    @property
    def depth(self) -> int:
        """Products of one output."""
        return int(np.prod(self.window.kernel)) * self.input_channels

    @property
    def is_gathered(self) -> bool:
        """Whether windows are copied; otherwise a window is a pixel of the image, in its order."""
        w = self.window
        return w.is_padded or w.kernel != (1, 1) or w.strides != (1, 1)

    @property
    def geometry(self) -> Array:
        """``struct utvm_mve_window``."""
        w = self.window
        values = (w.height, w.width, self.input_channels, w.output_width, *w.kernel)
        return np.array([*values, *w.strides, *w.dilations, w.top, w.left], dtype=np.int32)

    def prim_func(self) -> Any:
        return self._gathered() if self.is_gathered else self._in_place()

    def schedule(self, sch: Any, core: str) -> str:
        texts = [gemm.gemm_text(self.has_left)]
        if self.is_gathered:
            texts += [c_body("utvm_mve_copy"), c_body("utvm_mve_gather")]
        import_c(sch, *texts)
        weights, scaling, limits = self._tables
        blocks = self._blocks if self.is_gathered else [(0, 1, self._pixels)]
        for number, (_, _, pixels) in enumerate(blocks):
            source, sums, output = self._tile(number, pixels)
            reads = [source, weights, scaling, limits]
            tensorize(
                sch,
                f"tile_{number}",
                reads,
                [sums, output],
                partial(self._meaning, number, pixels),
                partial(self._call, [*reads, output], pixels),
            )
        where = f"{self.pixels} gathered at a time" if self.is_gathered else "pixels read in place"
        return f"Helium assembly, {gemm.PIXELS} pixels x 2 channels in registers, {where}"

    def _in_place(self) -> Any:
        """All pixels in one call."""
        pixels, (weights, scaling, limits) = self._pixels, self._tables
        source, sums, output = self._tile(0, pixels)

        def body(buffers: Buffers) -> None:
            with script.grid(1, 1) as (i, j), script.sblock("tile_0"):
                script.axis.remap("SS", [i, j])
                script.reads(*(one.region(buffers) for one in (source, weights, scaling, limits)))
                script.writes(sums.region(buffers), output.region(buffers))
                self._meaning(0, pixels, buffers)

        return prim_func([source, weights, scaling, limits, output], [sums], body)

    def _gathered(self) -> Any:
        w = self.window
        weights, scaling, limits = self._tables
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
                script.evaluate(extern("utvm_mve_gather", start, source.start(buffers), *numbers))

        def body(buffers: Buffers) -> None:
            for number, (first, count, pixels) in enumerate(self._blocks):
                source, sums, _ = tiles[number]
                with script.grid(w.batch, count) as (n, b):
                    gather(buffers, number, n, b)
                    with script.sblock(f"tile_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        start = vb * pixels + first
                        script.reads(
                            *(one.region(buffers) for one in (source, weights, scaling, limits))
                        )
                        script.writes(
                            sums.region(buffers),
                            buffers["output"][vn, start : start + pixels, 0 : self.output_channels],
                        )
                        self._meaning(number, pixels, buffers, (vn,), start)

        return prim_func(
            [image, geometry, weights, scaling, limits, "border", output],
            [operand for source, sums, _ in tiles for operand in (source, sums)],
            body,
        )

    def _call(self, operands: Sequence[Operand], pixels: int, buffers: Buffers) -> Any:
        starts = [one.start(buffers) for one in operands]
        numbers = (pixels, self.output_channels, self.depth, self.depth)
        return extern(gemm.name_of(self.has_left), *starts, *numbers)

    @property
    def _pixels(self) -> int:
        return self.window.batch * self.window.output_height * self.window.output_width

    @property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """First pixel, how many blocks, pixels of each."""
        outputs = self.window.output_height * self.window.output_width
        pixels = min(self.pixels, outputs)
        whole, rest = divmod(outputs, pixels)
        blocks = [(0, whole, pixels)]
        return [*blocks, (whole * pixels, 1, rest)] if rest else blocks

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand]:
        quads = -(-self.output_channels // gemm.CHANNELS)
        weights = quads * gemm.CHANNELS * gemm.padded_depth(self.depth)
        return (
            Operand("weights", (weights,), "int8"),
            Operand("scaling", (quads * gemm.scaling_words(self.has_left),), "int32"),
            Operand("limits", (3,), "int32"),
        )

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
        weights, scaling, limits = (buffers[n] for n in ("weights", "scaling", "limits"))
        tile = [("p", pixels, "S"), ("o", self.output_channels, "S")]
        padded, words = gemm.padded_depth(self.depth), gemm.scaling_words(self.has_left)

        def scale(row: int, o: Any) -> Any:
            return scaling[o // 4 * words + 4 * row + o % 4]

        def bias(p: Any, o: Any) -> None:
            value = scaling[o // 4 * words + o % 2 * 2 + o % 4 // 2]
            script.buffer_store(sums, value, [p, o])

        def product(p: Any, o: Any, k: Any) -> None:
            row = o // 4 * (4 * padded) + o % 2 * (2 * padded) + o % 4 // 2 * 16
            weight = weights[row + k // 16 * 32 + k % 16].astype("int32")
            total = sums[p, o] + source[p, k].astype("int32") * weight
            script.buffer_store(sums, total, [p, o])

        def requantize(p: Any, o: Any) -> None:
            shift = scale(2, o) + scale(3, o) if self.has_left else scale(2, o)
            scaled = pure("utvm_requantize", sums[p, o], scale(1, o), shift)
            clamped = pure("utvm_clamp", scaled + limits[0], limits[1], limits[2])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*image, start + p, o])

        block(f"bias_{number}", tile, bias)
        block(f"product_{number}", [*tile, ("k", self.depth, "R")], product)
        block(f"requantize_{number}", tile, requantize)


def mve_conv2d_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    tables: tuple[Array, Array, Array],
    border: int,
    limits: tuple[int, int, int],
    candidate: Candidate | None,
) -> KernelCall:
    """The call instead of the generic one.

    ``weights`` are [outputs, rows, columns, inputs], ``tables`` bias, multiplier and shift,
    ``limits`` the zero point and both ends.
    """
    outputs, inputs = weights.shape[0], weights.shape[3]
    has_left = gemm.has_left_shift(tables[2])
    kernel = MveConv2D(window, inputs, outputs, 0, has_left)
    kernel = replace(kernel, pixels=default_pixels(kernel) if kernel.is_gathered else 0)
    wanted = candidate.number("pixels") if candidate else None
    if wanted is not None and kernel.is_gathered:
        kernel = replace(kernel, pixels=wanted)
    arguments: list[Argument] = [
        ConstantArgument("weights", gemm.pack_weights(weights.reshape(outputs, -1))),
        ConstantArgument("scaling", gemm.pack_scaling(*tables)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    ]
    if kernel.is_gathered:
        geometry = ConstantArgument("geometry", kernel.geometry)
        arguments = [geometry, *arguments, ScalarArgument("border", border)]
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    return replace(call, kernel=kernel, arguments=(call.arguments[0], *arguments, output))


def default_pixels(kernel: MveConv2D) -> int:
    """How many pixels to gather at a time."""
    groups = _PATCHES_BYTES // (kernel.depth * gemm.PIXELS)
    return min(max(groups, 1) * gemm.PIXELS, _MOST_PIXELS)
