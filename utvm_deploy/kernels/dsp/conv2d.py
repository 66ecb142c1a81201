"""CONV_2D for cores with the DSP extension: gathered patches times stationary weights."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.dsp import gemm
from utvm_deploy.kernels.dsp.patches import gather_text
from utvm_deploy.kernels.dsp.routine import helper
from utvm_deploy.kernels.dsp.scaling import Scaling
from utvm_deploy.kernels.dsp.tensor_ir import Operand, import_c, nest, prim_func, tensorize
from utvm_deploy.kernels.window import Window

#: Patches of so many bytes at most, unless one group of pixels alone needs more.
_FEW_PATCHES_BYTES = 2048
_PATCHES_BYTES = 3500
#: Weights beyond the reach of small caches are read once for each block of pixels: larger blocks.
_LARGE_WEIGHTS_BYTES = 8192
_LARGE_PATCHES_BYTES = 20_000
_MOST_PIXELS = 24


@dataclass(frozen=True)
class DspConv2D:
    """Shape parameters; ``pixels`` are gathered at a time."""

    window: Window
    input_channels: int
    output_channels: int
    pixels: int
    core: str

    @property
    def name(self) -> str:
        return f"conv2d_{self.window.label}_{self.input_channels}x{self.output_channels}_dsp"

    @property
    def depth(self) -> int:
        """Products of one output, padded to what the inner loop does."""
        return gemm.padded_depth(int(np.prod(self.window.kernel)) * self.input_channels)

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
        parameters = [
            *(o.parameter for o in (image, geometry, weights, scaling, limits)),
            "border: T.int32",
            output.parameter,
        ]
        body = ""
        for block, (first, count, pixels) in enumerate(self._blocks):
            patches, sums, _ = self._tile(block, pixels)
            body += f"{patches.allocation}\n{sums.allocation}\n"
            start = f"vb * {pixels} + {first}"
            gather = (
                f"T.address_of(image[vn, 0, 0, 0]), {patches.start}, "
                f"{start}, {pixels}, border, T.address_of(geometry[0])"
            )
            body += f"""\
for n, b in T.grid({w.batch}, {count}):
    with T.sblock("gather_{block}"):
        vn, vb = T.axis.remap("SS", [n, b])
        T.reads(image[vn, 0:{w.height}, 0:{w.width}, 0:{self.input_channels}], {geometry.region})
        T.writes({patches.region})
        T.evaluate(T.call_extern("int32", "utvm_gather", {gather}))
    with T.sblock("tile_{block}"):
        vn, vb = T.axis.remap("SS", [n, b])
        T.reads({patches.region}, {weights.region}, {scaling.region}, {limits.region})
        T.writes({sums.region}, output[vn, {start}:{start} + {pixels}, 0:{self.output_channels}])
{textwrap.indent(self._meaning(block, pixels, f"vn, {start} + "), " " * 8)}
"""
        return prim_func(parameters, body)

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, scale_text(), gemm.gemm_text(core), gather_text(core))
        weights, scaling, limits = self._tables
        for block, (_, _, pixels) in enumerate(self._blocks):
            patches, sums, output = self._tile(block, pixels)
            reads = [patches, weights, scaling, limits]
            starts = ", ".join(o.start for o in (*reads, output))
            tensorize(
                sch,
                f"tile_{block}",
                reads,
                [sums, output],
                self._meaning(block, pixels, ""),
                f'T.call_extern("int32", "utvm_gemm", {starts}, {pixels}, '
                f"{self.output_channels}, {self.depth})",
            )
        return (
            f"DSP assembly, {gemm.PIXELS} pixels x {gemm.CHANNELS} channels in registers, "
            f"{self.pixels} pixels gathered at a time"
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
        pairs = -(-self.output_channels // gemm.CHANNELS)
        weights = pairs * self.depth * gemm.CHANNELS + gemm.SLACK_BYTES
        scaling = pairs * gemm.SCALING_ROWS * gemm.CHANNELS
        return (
            Operand("weights", (weights,), "int8"),
            Operand("scaling", (scaling,), "int32"),
            Operand("limits", (2,), "int32"),
        )

    def _tile(self, block: int, pixels: int) -> tuple[Operand, Operand, Operand]:
        groups = -(-pixels // gemm.PIXELS)
        size = groups * gemm.PIXELS * self.depth + gemm.SLACK_BYTES // 2
        if self.input_channels % 4:
            size += self.depth // 2  # one window's bytes
        return (
            Operand(f"patches_{block}", (size,), "int16"),
            Operand(f"sums_{block}", (pixels, self.output_channels), "int32"),
            Operand("output", (pixels, self.output_channels), "int8"),
        )

    def _meaning(self, block: int, pixels: int, start: str) -> str:
        patches, sums = f"patches_{block}", f"sums_{block}"
        outputs, depth = self.output_channels, self.depth
        per_pair = gemm.SCALING_ROWS * gemm.CHANNELS
        row = [f"scaling[vo // 2 * {per_pair} + {2 * n} + vo % 2]" for n in range(4)]
        x = f"vp // 3 * {3 * depth} + vq * 12 + vf * 6 + vp % 3 * 2 + vl"
        w = f"vo // 2 * {2 * depth} + vq * 8 + vf * 4 + vl * 2 + vo % 2"
        scaled = f'T.call_pure_extern("int32", "utvm_scale", {sums}[vp, vo], {", ".join(row[1:])})'
        tile = [("p", pixels, "S"), ("o", outputs, "S")]
        inner = [("q", depth // 4, "R"), ("f", 2, "R"), ("l", 2, "R")]
        product = f'T.cast({patches}[{x}], "int32") * T.cast(weights[{w}], "int32")'
        clamped = f'T.call_pure_extern("int32", "utvm_clamp", {scaled}, limits[0], limits[1])'
        return "".join(
            [
                nest(f"bias_{block}", tile, f"{sums}[vp, vo] = {row[0]}"),
                nest(
                    f"product_{block}",
                    [*tile, *inner],
                    f"{sums}[vp, vo] = {sums}[vp, vo] + {product}",
                ),
                nest(
                    f"requantize_{block}",
                    tile,
                    f'output[{start}vp, vo] = T.cast({clamped}, "int8")',
                ),
            ]
        )


def scale_text() -> str:
    """The C text of ``utvm_scale``."""
    return helper("utvm_scale")


def dsp_conv2d_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
    core: str,
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [outputs, rows, columns, inputs]."""
    outputs, inputs = weights.shape[0], weights.shape[3]
    kernel = DspConv2D(window, inputs, outputs, 0, core)
    kernel = replace(kernel, pixels=_pixels(kernel))
    arguments: list[Argument] = [
        call.arguments[0],
        ConstantArgument("geometry", kernel.geometry),
        ConstantArgument("weights", gemm.pack_weights(weights.reshape(outputs, -1))),
        ConstantArgument("scaling", gemm.pack_scaling(scaling)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
        ScalarArgument("border", border),
    ]
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    return replace(call, kernel=kernel, arguments=(*arguments, output))


def _pixels(kernel: DspConv2D) -> int:
    """How many pixels to gather at a time."""
    depth = kernel.depth
    is_large = depth * kernel.output_channels > _LARGE_WEIGHTS_BYTES
    w = kernel.window
    activations = w.height * w.width * kernel.input_channels
    activations += w.output_height * w.output_width * kernel.output_channels
    # Where the activations are the arena's peak, the patches come on top of it.
    budget = min(max(activations // 6, _FEW_PATCHES_BYTES), _PATCHES_BYTES)
    if is_large:
        budget = _LARGE_PATCHES_BYTES
    groups = budget // (2 * depth * gemm.PIXELS)
    return min(max(groups, 1) * gemm.PIXELS, _MOST_PIXELS)
