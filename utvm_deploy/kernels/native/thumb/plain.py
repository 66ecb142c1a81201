"""The matrix product for cores with Thumb alone (Cortex-M0+): one pixel by four channels.

Such a core has eight registers that can load and multiply, MULS overwrites a factor, and LDRSB
wants its offset in a register. Five pointers that share one offset, a byte of the pixel and one
product are those eight; the sums are in the others. That is the assembly, called for every four
outputs; the rest is C. Products of 64 bits, of which the core has none, are made of four of 32.

Layouts:
    weights  int8  [channel][depth], zeros for channels up to a multiple of four
    scaling  int32 [channel][bias, multiplier, offset, shift], or as in ``gemm.py`` for one rounding
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.thumb import gemm
from utvm_deploy.kernels.native.thumb.conv2d import ThumbProduct

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__thumb__) && !defined(__thumb2__) && defined(__GNUC__)"
TILE = gemm.ThumbTile(1, 4)
DOT_PARAMETERS = (
    "const int8_t *pixel",
    "const int8_t *weights",
    "int32_t depth",
    "int32_t *sums",
)
_UNROLLED = 4
_HIGH = ("r8", "r9", "r10", "r11")


@dataclass(frozen=True)
class PlainProduct(ThumbProduct):
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

    def texts(self) -> tuple[str, ...]:
        body = replaced(
            family_text("thumb", "utvm_plain_gemm"),
            ("SCALED", _SCALED[self.tile.rounding], 1),
            ("ROWS", str(self.tile.rows), 1),
        )
        declared = ",\n    ".join(PRODUCT_PARAMETERS)
        dot = family_text("thumb", "utvm_plain_dot")
        return (
            family_text("thumb", "utvm_plain_scale"),
            naked_function("utvm_plain_dot", DOT_PARAMETERS, _lines(), dot, CONDITION),
            f"static void {self.function}(\n    {declared}) {{\n{body}}}\n",
        )  # fmt: skip

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """[channels, depth] and [rows, channels] -> both tables."""
        filled = -(-weights.shape[0] // TILE.channels) * TILE.channels
        missing = ((0, filled - weights.shape[0]), (0, 0))
        scaling = np.ascontiguousarray(np.pad(rows.T, missing), dtype=np.int32)
        return np.pad(weights, missing).reshape(-1), scaling.reshape(-1)


def plain_product(rounding: str) -> PlainProduct:
    """The product that rounds so."""
    return PlainProduct(replace(TILE, rounding=rounding))


_SCALED = {
    gemm.SHORT: "utvm_plain_scale(value, s[1], s[2], s[3])",
    gemm.WIDE: "utvm_plain_scale_wide(value, limits[2], limits[3], limits[4], limits[5])",
    gemm.WIDE_EACH: "utvm_plain_scale_wide(value, s[1], s[2], s[3], s[4])",
}


def _lines() -> list[str]:
    step = ["ldrsb r6, [r0, r5]"]
    for pointer, total in zip(("r1", "r2", "r3", "r4"), _HIGH, strict=True):
        step += [f"ldrsb r7, [{pointer}, r5]", "muls r7, r6", f"add {total}, r7"]
    step.append("adds r5, #1")
    low = ("r4", "r5", "r6", "r7")
    return [
        "push {r4-r7, lr}",
        *(f"mov {a}, {b}" for a, b in zip(low, _HIGH, strict=True)),
        "push {r4-r7}",
        "mov r12, r3",
        # Pointers to the ends of the pixel and of four channels, and an offset that ends at 0.
        "negs r5, r2",
        "mov r6, r2",
        "adds r0, r2",
        "adds r1, r2",
        "adds r2, r1, r6",
        "adds r3, r2, r6",
        "adds r4, r3, r6",
        "movs r6, #0",
        *(f"mov {total}, r6" for total in _HIGH),
        "1:",
        "lsls r6, r5, #30",  # what is no multiple of four
        "beq 2f",
        *step,
        "b 1b",
        "2:",
        "cmp r5, #0",
        "beq 4f",
        "3:",
        *(step * _UNROLLED),
        "bne 3b",
        "4:",
        "mov r3, r12",
        *(f"mov {a}, {b}" for a, b in zip(low, _HIGH, strict=True)),
        "stmia r3!, {r4-r7}",
        "pop {r4-r7}",
        *(f"mov {b}, {a}" for a, b in zip(low, _HIGH, strict=True)),
        "pop {r4-r7, pc}",
    ]
