"""The depthwise product of float32 or float16 by vectors of channels.

The code is that of ``fpu/depthwise_code.py`` with vectors instead of single registers. A row of the
kernel has its weights in vectors, and each column of the image is loaded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.native.fpu.depthwise import depthwise_call
from utvm_deploy.kernels.native.fpu.depthwise_code import DepthwiseTile, depthwise_text
from utvm_deploy.kernels.native.mve.float_lanes import HALVES, SINGLES, Lanes, half_texts
from utvm_deploy.kernels.native.mve.float_rows import FLOAT_CONDITION, limit, store

#: Vectors of sums and weights; one more is loaded.
_VECTORS = 7
#: Core cycles of a tile, and of a row of a tile, without its products.
_TILE, _ROW = 60, 8


@dataclass(frozen=True)
class VectorDepthwiseTile(DepthwiseTile):
    """Some pixels by a vector of channels, of which fewer may be there."""

    fused: bool = True

    lanes: ClassVar[Lanes] = SINGLES
    what: ClassVar[str] = "Helium assembly"
    family: ClassVar[str] = "mve"

    @property
    def slack(self) -> int:
        return self.lanes.count - self.channels

    @property
    def function(self) -> str:
        sizes = f"{self.columns}_s{self.stride}_{self.pixels}x{self.channels}"
        return f"utvm_mve_{self.numbers}_depthwise_{sizes}"

    def text(self, core: str) -> str:
        return depthwise_text(self, core, FLOAT_CONDITION)

    def begin(self, a: Assembler) -> None:
        for pixel in range(self.pixels):
            a.vmov_i32(f"q{pixel}", 0)

    def row(self, a: Assembler, core: str) -> None:
        for tap in range(self.columns):
            self._load_weights(a, f"q{self.pixels + tap}")
        value = f"q{self.pixels + self.columns}"
        for column in range(self.width):
            taps = [(pixel, column - pixel * self.stride) for pixel in range(self.pixels)]
            seen = [(f"q{p}", self.pixels + tap) for p, tap in taps if 0 <= tap < self.columns]
            products = [(total, value, f"q{weights}") for total, weights in seen]
            self.lanes.load(a, value, at("r0"))
            for one in products[:1]:
                self.lanes.compute(a, "vfma", *one)
            a.add("r0", "r7")  # while the product is computed
            for one in products[1:]:
                self.lanes.compute(a, "vfma", *one)

    def add_bias(self, a: Assembler) -> None:
        self._load_weights(a, f"q{self.pixels}")
        for pixel in range(self.pixels):
            self.lanes.compute(a, "vadd", f"q{pixel}", f"q{pixel}", f"q{self.pixels}")

    def _load_weights(self, a: Assembler, vector: str) -> None:
        self.lanes.load(a, vector, post("r1", self.lanes.size * self.channels))

    def finish(self, a: Assembler, core: str) -> None:
        done = Label()
        limit(a, self.pixels, self.lanes)
        for pixel in range(self.pixels):
            if pixel:
                a.subs("r4", 1)
                a.b(done, "eq")
            store(a, (f"q{pixel}",), self.channels, self.lanes)
        a.place(done)


@dataclass(frozen=True)
class HalfDepthwiseTile(VectorDepthwiseTile):
    """The same of float16."""

    lanes: ClassVar[Lanes] = HALVES
    dtype: ClassVar[str] = HALVES.dtype
    numbers: ClassVar[str] = "half"

    @property
    def helpers(self) -> tuple[str, ...]:
        return half_texts(self.body())

    def body(self) -> str:
        return replaced(
            family_text("mve", "utvm_half_depthwise"),
            ("FORMAT", FLOAT16_ARITHMETIC.symbol("").rstrip("_"), 4),
            ("CHANNELS", str(self.channels), 6),
            ("COLUMNS", str(self.columns), 4),
            ("STRIDE", str(self.stride), 1),
        )


def build_depthwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """DEPTHWISE_CONV_2D of several channels with one output each."""
    return depthwise_call(layer, partial(_tile, VectorDepthwiseTile))


def build_half_depthwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """The same of float16."""
    return depthwise_call(layer, partial(_tile, HalfDepthwiseTile))


def _tile(
    kind: type[VectorDepthwiseTile], window: Window, channels: int, core: str
) -> VectorDepthwiseTile | None:
    """The tile with the pixels that take the fewest cycles for a row of outputs."""
    (rows, columns), stride = window.kernel, window.strides[1]
    most = min(_VECTORS - columns, window.output_width)

    def cycles(tile: VectorDepthwiseTile) -> int:
        products = max(2 * tile.pixels * columns, 2 * tile.width + columns + tile.pixels * columns)
        tiles = -(-window.output_width // tile.pixels)
        return tiles * (_TILE + 8 * tile.pixels + rows * (_ROW + products))

    tiles = (
        kind(columns, stride, min(kind.lanes.count, channels), pixels=pixels)
        for pixels in range(1, most + 1)
    )
    return min(tiles, key=cycles, default=None)
