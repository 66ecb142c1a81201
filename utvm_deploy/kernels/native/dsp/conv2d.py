"""CONV_2D for cores with the DSP extension: gathered patches times stationary weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import gemm
from utvm_deploy.kernels.native.dsp.patches import gather_text
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
from utvm_deploy.records.candidate import Candidate

#: Pixels gathered at a time, where nobody chooses.
PIXELS = 12
_WORD = 4


@dataclass(frozen=True)
class DspConv2D:
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
    def depth(self) -> int:
        """Products of one output, padded to what the inner loop does."""
        return gemm.padded_depth(int(np.prod(self.window.kernel)) * self.input_channels)

    @property
    def scratch_bytes(self) -> int:
        """What the patches take."""
        patches, _, _ = self._tile(0, self._blocks[0][2])
        return 2 * patches.shape[0]

    @property
    def geometry(self) -> Array:
        """``struct utvm_window``."""
        w = self.window
        values = (w.height, w.width, self.input_channels, w.output_width, *w.kernel)
        return np.array([*values, *w.strides, *w.dilations, w.top, w.left], dtype=np.int32)

    def prim_func(self) -> Any:
        w = self.window
        weights, scaling, limits = self._tables
        outputs = w.output_height * w.output_width
        image = Operand("image", (w.batch, w.height, w.width, self.input_channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        output = Operand("output", (w.batch, outputs, self.output_channels), "int8")
        tiles = [self._tile(block, pixels) for block, (_, _, pixels) in enumerate(self._blocks)]

        def body(buffers: Buffers) -> None:
            for number, (first, count, pixels) in enumerate(self._blocks):
                patches, sums, _ = tiles[number]
                with script.grid(w.batch, count) as (n, b):
                    with script.sblock(f"gather_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        start = vb * pixels + first
                        whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                        script.reads(buffers["image"][whole], geometry.region(buffers))
                        script.writes(patches.region(buffers))
                        script.evaluate(
                            extern(
                                "utvm_gather",
                                script.address_of(buffers["image"][vn, 0, 0, 0]),
                                patches.start(buffers),
                                start,
                                pixels,
                                buffers["border"],
                                geometry.start(buffers),
                            )
                        )
                    with script.sblock(f"tile_{number}"):
                        vn, vb = script.axis.remap("SS", [n, b])
                        start = vb * pixels + first
                        script.reads(
                            *(one.region(buffers) for one in (patches, weights, scaling, limits))
                        )
                        script.writes(
                            sums.region(buffers),
                            buffers["output"][vn, start : start + pixels, 0 : self.output_channels],
                        )
                        self._meaning(number, pixels, buffers, (vn,), start)

        return prim_func(
            [image, geometry, weights, scaling, limits, "border", output],
            [operand for patches, sums, _ in tiles for operand in (patches, sums)],
            body,
            helpers=[shared_text("utvm_scale"), gather_text(ANY_CORE)],
        )

    def schedule(self, sch: Any, core: str) -> str:
        import_c(
            sch,
            shared_text("utvm_scale"),
            gemm.gemm_text(core, self.step, self.depth),
            gather_text(core),
        )
        weights, scaling, limits = self._tables
        for number, (_, _, pixels) in enumerate(self._blocks):
            patches, sums, output = self._tile(number, pixels)
            reads = [patches, weights, scaling, limits]
            tensorize(
                sch,
                f"tile_{number}",
                reads,
                [sums, output],
                partial(self._meaning, number, pixels),
                partial(self._call, [*reads, output], pixels),
            )
        return (
            f"DSP assembly, {gemm.PIXELS} pixels x {gemm.CHANNELS} channels in registers, "
            f"{self.pixels} pixels gathered at a time"
        )

    def _call(self, operands: Sequence[Operand], pixels: int, buffers: Buffers) -> Any:
        starts = [one.start(buffers) for one in operands]
        return extern(
            gemm.name_of(self.step, self.depth), *starts, pixels, self.output_channels, self.depth
        )

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
        return tables(self.output_channels, self.depth)

    def _tile(self, block: int, pixels: int) -> tuple[Operand, Operand, Operand]:
        groups = -(-pixels // gemm.PIXELS)
        size = groups * gemm.PIXELS * self.depth + gemm.SLACK_BYTES // 2
        if self.input_channels % 4:
            # One window's bytes, and what the last word of its last row is longer.
            size += (self.depth + _WORD) // 2
        return (
            Operand(f"patches_{block}", (size,), "int16"),
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

        def value(p: Any, q: Any, f: Any, lane: Any) -> Any:
            return p // 3 * (3 * self.depth) + q * 12 + f * 6 + p % 3 * 2 + lane

        tile = Tile(number, [("p", pixels)], self.output_channels, self.depth, "patches", value)
        tile.blocks(buffers, lambda p: (*image, start + p))


def patches_call(
    call: KernelCall,
    kernel: DspConv2D,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [outputs, rows, columns, inputs]."""
    flat = weights.reshape(weights.shape[0], -1)
    return product_call(call, kernel, flat, scaling, border, limits)


def patches_kernel(
    window: Window, inputs: int, outputs: int, candidate: Candidate | None = None
) -> DspConv2D | str:
    """The kernel as the candidate has it, or as is best by default; why there is none."""
    kernel = DspConv2D(window, inputs, outputs, 0, 0)
    steps = gemm.steps_for(kernel.depth)
    pixels = candidate.number("pixels") if candidate else None
    step = candidate.number("step") if candidate else None
    if step is not None and step not in steps:
        return f"the inner loop has no step of {step} for depth {kernel.depth}; there are {steps}"
    if pixels is not None and (pixels < gemm.PIXELS or pixels % gemm.PIXELS):
        return f"{pixels} pixels are not gathered at a time; multiples of {gemm.PIXELS} are"
    return replace(kernel, pixels=pixels or PIXELS, step=step or steps[0])
