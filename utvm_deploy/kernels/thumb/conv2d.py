"""CONV_2D in Thumb-2: the product of ``gemm.py`` on gathered windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.candidate import Candidate
from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.dsp.conv2d import scale_text
from utvm_deploy.kernels.dsp.scaling import Scaling
from utvm_deploy.kernels.dsp.tensor_ir import Buffers, Operand, pure
from utvm_deploy.kernels.gathered import gathered, gathered_conv2d_call
from utvm_deploy.kernels.thumb import gemm
from utvm_deploy.kernels.window import Window


@dataclass(frozen=True)
class ThumbProduct:
    """The micro-kernel of ``gemm.py``."""

    tile: gemm.Tile

    @property
    def label(self) -> str:
        return f"thumb_{self.tile.label}_{self.tile.step}"

    @property
    def pixels(self) -> int:
        return self.tile.pixels

    @property
    def function(self) -> str:
        return self.tile.function

    @property
    def why(self) -> str:
        pixels, channels = self.tile.pixels, self.tile.channels
        return f"Thumb-2 assembly, {pixels} pixels x {channels} channels in registers"

    def texts(self) -> tuple[str, ...]:
        return scale_text(), gemm.gemm_text(self.tile)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        filled = -(-channels // self.tile.channels) * self.tile.channels
        return (
            Operand("weights", (filled * depth,), "int8"),
            Operand("scaling", (filled * gemm.ROWS,), "int32"),
            Operand("limits", (2,), "int32"),
        )

    def bias(self, buffers: Buffers, o: Any) -> Any:
        return self._row(buffers, o, 0)

    def weight(self, buffers: Buffers, o: Any, k: Any, depth: int) -> Any:
        slots = self.tile.channels
        place = o // slots * (slots * depth) + k * slots + o % slots
        return buffers["weights"][place].astype("int32")

    def scaled(self, buffers: Buffers, total: Any, o: Any) -> Any:
        limits = buffers["limits"]
        value = pure("utvm_scale", total, *(self._row(buffers, o, n) for n in (1, 2, 3)))
        return pure("utvm_clamp", value, limits[0], limits[1]).astype("int8")

    def _row(self, buffers: Buffers, o: Any, row: int) -> Any:
        slots = self.tile.channels
        return buffers["scaling"][o // slots * (gemm.ROWS * slots) + o % slots + row * slots]


def thumb_conv2d_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
    candidate: Candidate | None,
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [outputs, rows, columns, inputs]."""
    outputs, inputs = weights.shape[0], weights.shape[3]
    tile = tile_for(candidate)
    pixels = candidate.number("pixels") if candidate else None
    packed = (
        ConstantArgument("weights", gemm.pack_weights(weights.reshape(outputs, -1), tile)),
        ConstantArgument("scaling", gemm.pack_scaling(scaling, tile)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    )
    kernel = gathered(window, (inputs, outputs), ThumbProduct(tile), pixels)
    return gathered_conv2d_call(call, kernel, packed, border)


def tile_for(candidate: Candidate | None) -> gemm.Tile:
    """The register tile that a candidate asks for."""
    label = candidate.choice("tile") if candidate else None
    step = candidate.number("step") if candidate else None
    for tile in gemm.TILES:
        if (label or gemm.TILES[0].label) == tile.label and (step or 4) == tile.step:
            return tile
    raise UnsupportedOperator(f"no register tile {label} with step {step}")
