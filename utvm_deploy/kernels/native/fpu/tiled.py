"""What products and depthwise convolutions share: groups of channels, one for a register tile."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.fpu.depthwise_code import DepthwiseTile
from utvm_deploy.kernels.native.fpu.gemm import FpuTile, pack
from utvm_deploy.kernels.native.fpu.operands import elements
from utvm_deploy.kernels.native.fpu.row_tile import RowTile

_Tile = TypeVar("_Tile", FpuTile, RowTile, DepthwiseTile)


class Tiled(Generic[_Tile]):
    """A part of kernels, which have a window and a tile."""

    window: Window
    tile: _Tile

    #: How images are read, for the report.
    way: ClassVar[str] = ""

    @property
    def outputs(self) -> int:
        """Channels of the output."""
        raise NotImplementedError

    @property
    def depth(self) -> int:
        """Products of an output."""
        raise NotImplementedError

    @property
    def why(self) -> str:
        tile = self.tile
        rounded = "that may be fused" if tile.fused else "rounded as by the reference"
        if tile.dtype != "float32":
            rounded = "rounded once with their sum"
        sizes = f"{tile.pixels} pixels x {tile.channels} channels in registers"
        return f"{tile.what}{self.way}, {sizes}, products {rounded}"

    @property
    def parts(self) -> list[tuple[_Tile, int, int]]:
        """The tiles of whole groups and of the channels that remain: first channel, groups."""
        groups, rest = divmod(self.outputs, self.tile.channels)
        found = [(self.tile, 0, groups)] if groups else []
        if rest:
            found.append((replace(self.tile, channels=rest), groups * self.tile.channels, 1))
        return found

    def packed(self, weights: Array, bias: Array) -> Array:
        """Weights, of which each output has a row, and the bias as the tiles read them."""
        flat = weights.reshape(len(weights), -1)
        found: list[Array] = []
        for tile, first, groups in self.parts:
            some = slice(first, first + groups * tile.channels)
            found.append(pack(flat[some], bias[some], tile.channels))
        floats = np.concatenate([*found, np.zeros(self.slack, np.float32)])
        return elements(floats, self.tile.dtype)

    @property
    def slack(self) -> int:
        """Values that are read past the weights."""
        return self.parts[-1][0].slack

    @property
    def _size(self) -> int:
        """Bytes of an element."""
        return element_type(self.tile.dtype).unit_bytes

    @property
    def _panels(self) -> Operand:
        count = self.outputs * (self.depth + 1) + self.slack
        return Operand("weights", (count,), self.tile.dtype)

    @property
    def _limits(self) -> Operand:
        return Operand("limits", (2,), self.tile.dtype)
