"""The matrix product for cores with Thumb alone (Cortex-M0): one pixel by four channels.

Such a core can load and multiply in eight registers only. MULS overwrites a factor, and LDRSB
takes its offset from a register. Five pointers share one offset; a byte of the pixel and a product
take the other two registers. The sums are in r8 to r11. This is the assembly, which a C function
calls for every four outputs. Its 64-bit products are made of four 32-bit ones.

Layouts:
    weights  int8  [channel][depth], zeros for channels up to a multiple of four
    scaling  int32 [channel][bias, multiplier, offset, shift], or as in ``gemm.py`` for one rounding
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.mnemonics import at
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.thumb import gemm
from utvm_deploy.kernels.native.thumb.conv2d import GemmChoices, ThumbProduct
from utvm_deploy.kernels.native.thumb.shared_blocks import ARMV6M_CONDITION

TILE = gemm.ThumbTile(1, 4)
DOT_PARAMETERS = "const int8_t *pixel, const int8_t *weights, int32_t depth, int32_t *sums"
#: About the instructions of a pixel by four channels, and of each step of its depth.
_TILE_INSTRUCTIONS, _STEP = 284.0, 15.4
_UNROLLED = 4
_CHANNELS = ("r1", "r2", "r3", "r4")
_SUMS = ("r8", "r9", "r10", "r11")
_LOW = ("r4", "r5", "r6", "r7")


@dataclass(frozen=True)
class Armv6mProduct(ThumbProduct):
    """The micro-kernel of this module; ``tile`` says how it rounds."""

    tile: gemm.ThumbTile = TILE

    @property
    def label(self) -> str:
        return f"plain{self.tile.rounding}"

    @property
    def function(self) -> str:
        return f"utvm_plain_gemm{self.tile.rounding}"

    @property
    def why(self) -> str:
        return "Thumb assembly, 1 pixel x 4 channels in registers"

    def cycles(self, count: int, channels: int, depth: int) -> float:
        """About the instructions of the product of ``count`` pixels."""
        return count * -(-channels // TILE.channels) * (_TILE_INSTRUCTIONS + _STEP * depth)

    def texts(self, core: str) -> tuple[str, ...]:
        body = replaced(
            family_text("thumb", "utvm_plain_gemm"),
            ("SCALED", _SCALED[self.tile.rounding], 1),
            ("ROWS", str(self.tile.rows), 1),
        )
        dot = family_text("thumb", "utvm_plain_dot")
        is_short = self.tile.rounding == gemm.SHORT
        scale = "utvm_plain_scale" if is_short else "utvm_plain_scale_wide"
        return (
            family_text("thumb", "utvm_plain_multiply"),
            family_text("thumb", scale),
            _dot().c_function("utvm_plain_dot", dot, ARMV6M_CONDITION),
            f"static void {self.function}({PRODUCT_PARAMETERS}) {{\n{body}}}\n",
        )  # fmt: skip

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """[channels, depth] and [rows, channels] -> both tables."""
        filled = -(-weights.shape[0] // TILE.channels) * TILE.channels
        missing = ((0, filled - weights.shape[0]), (0, 0))
        scaling = np.ascontiguousarray(np.pad(rows.T, missing), dtype=np.int32)
        return np.pad(weights, missing).reshape(-1), scaling.reshape(-1)


def armv6m_product(
    rounding: str, choices: GemmChoices, sizes: tuple[int, int, int]
) -> Armv6mProduct:
    """The one product that there is; it leaves nothing to choose."""
    return Armv6mProduct(replace(TILE, rounding=rounding))


_SCALED = {
    gemm.SHORT: "utvm_plain_scale(value, s[1], s[2], s[3])",
    gemm.WIDE: "utvm_plain_scale_wide(value, limits[2], limits[3], limits[4], limits[5])",
    gemm.WIDE_EACH: "utvm_plain_scale_wide(value, s[1], s[2], s[3], s[4])",
}


def _dot() -> Assembler:
    """Four sums of products: of one pixel, and of the weights of four channels."""
    a = Assembler(parameters=DOT_PARAMETERS, has_thumb2=False)
    a.enter()
    a.mov("r12", a.argument("sums"))
    # r0 to r4 point to the end of the pixel and of the channels; r5 counts from -depth to 0.
    a.negs("r5", "r2")
    a.mov("r6", "r2")
    a.adds("r0", "r2")
    a.adds("r1", "r2")
    for channel, following in pairwise(_CHANNELS):
        a.adds(following, channel, "r6")
    a.movs("r6", 0)
    for total in _SUMS:
        a.mov(total, "r6")
    is_multiple = Label()
    with a.loop(""):
        a.lsls("r6", "r5", 30)  # the two lowest bits of the count
        a.b(is_multiple, "eq")
        _step(a)
    a.place(is_multiple)
    a.cmp("r5", 0)
    with a.unless("eq"), a.loop("ne"):
        for _ in range(_UNROLLED):
            _step(a)
    a.mov("r3", "r12")
    for low, total in zip(_LOW, _SUMS, strict=True):
        a.mov(low, total)
    a.stmia("r3!", _LOW)
    a.leave()
    return a


def _step(a: Assembler) -> None:
    """A product for each of the four sums."""
    a.ldrsb("r6", at("r0", "r5"))
    for channel, total in zip(_CHANNELS, _SUMS, strict=True):
        a.ldrsb("r7", at(channel, "r5"))
        a.muls("r7", "r6")
        a.add(total, "r7")
    a.adds("r5", 1)
