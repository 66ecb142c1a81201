"""What the vector kernels share: registers, rounding, and how assembly becomes a C function.

A *block* is as many channels as a vector holds. Its weights are bytes in ``lmul`` registers. They
are multiplied as int16 in twice as many, and the sums of a pixel have four times as many.

Rounding is the reference's. VSMUL rounds its product half up. VSSRA rounds half up, too, so one is
taken from negative values before it: the reference rounds halves away from zero. That takes a shift
of at least 1. VNCLIP saturates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import VECTORS
from utvm_deploy.kernels.isa.naked_function import Around, naked_function
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.scaling import constant_outputs

#: Registers of a block's weights -> pixels of a tile, the largest tile first.
TILES = {2: (3, 2, 1), 1: (6, 3, 1)}
_AROUND = Around(
    '        ".option push\\n"\n        ".option arch, +zicsr, +zve32x\\n"\n',
    '\n        ".option pop\\n"',
)
_SAVED = [f"s{number}" for number in range(12)]
#: Bytes that a routine puts on the stack.
FRAME = 4 * len(_SAVED)
#: C for what ``requantize_once`` computes.
ROUNDED = """\
static inline int32_t utvm_rvv_rounded(int32_t value, int32_t multiplier, int32_t shift) {
    const int32_t high = (int32_t)(((int64_t)value * multiplier) >> 32);
    return (high + (1 << (shift - 1))) >> shift;
}
"""
#: What VSSRA shifts by at most.
_LARGEST_SHIFT = 31


@dataclass(frozen=True)
class Block:
    """The vector registers of a kernel whose weights are bytes in ``lmul`` registers."""

    lmul: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels of the tiles, the largest first."""
        return TILES[self.lmul]

    @property
    def bits8(self) -> str:
        return f"e8, m{self.lmul}, ta, mu"

    @property
    def bits16(self) -> str:
        return f"e16, m{2 * self.lmul}, ta, mu"

    @property
    def bits32(self) -> str:
        return f"e32, m{4 * self.lmul}, ta, mu"

    def sums(self, pixels: int) -> list[str]:
        """The sums of each pixel; v0 to v7 are free."""
        return [f"v{8 + 4 * self.lmul * pixel}" for pixel in range(pixels)]

    def load_wide(self, number: int, address: str) -> list[str]:
        """Bytes as int16, in one of the places of v0 to v7."""
        first = 2 * self.lmul * number
        # They may overlap at the end of the wider group only.
        narrow = f"v{first + self.lmul}"
        return [f"vle8.v {narrow}, ({address})", f"vsext.vf2 v{first}, {narrow}"]

    def wide(self, number: int) -> str:
        """Where ``load_wide`` puts them."""
        return f"v{2 * self.lmul * number}"

    def begin(self, sums: Sequence[str], scaling: str) -> list[str]:
        """Sums begin with the bias, which the table at ``scaling`` begins with."""
        copies = [f"vmv{4 * self.lmul}r.v {one}, {sums[0]}" for one in sums[1:]]
        return [f"vle32.v {sums[0]}, ({scaling})", *copies]

    def requantize(
        self, sums: Sequence[str], scaling: str, row: str, zero_point: str, temporary: str
    ) -> list[str]:
        """Sums to int16 outputs: a row of multipliers, then one of shifts, follow the bias."""
        lines = [f"vsetvli zero, zero, {self.bits32}", f"add {temporary}, {scaling}, {row}"]
        lines += [f"vle32.v v0, ({temporary})", f"add {temporary}, {temporary}, {row}"]
        lines += [f"vsmul.vv {one}, {one}, v0" for one in sums]
        for one in sums:
            lines += [f"vmslt.vx v0, {one}, zero", f"vadd.vi {one}, {one}, -1, v0.t"]
        lines += [f"vle32.v v0, ({temporary})"]
        lines += [f"vssra.vv {one}, {one}, v0" for one in sums]
        return [*lines, *self.narrowed(sums), *(f"vsadd.vx {s}, {s}, {zero_point}" for s in sums)]

    def requantize_once(
        self, sums: Sequence[str], scaling: str, row: str, temporary: str
    ) -> list[str]:
        """Sums to int16: the high word of the product is shifted, and rounded half up."""
        lines = [f"vsetvli zero, zero, {self.bits32}", f"add {temporary}, {scaling}, {row}"]
        lines += [f"vle32.v v0, ({temporary})", f"add {temporary}, {temporary}, {row}"]
        lines += [f"vmulh.vv {one}, {one}, v0" for one in sums]
        lines += [f"vle32.v v0, ({temporary})"]
        lines += [f"vssra.vv {one}, {one}, v0" for one in sums]
        return [*lines, *self.narrowed(sums)]

    def narrowed(self, sums: Sequence[str]) -> list[str]:
        """Values of 32 bits to int16."""
        return [f"vsetvli zero, zero, {self.bits16}", *(f"vnclip.wi {s}, {s}, 0" for s in sums)]

    def store(
        self, sums: Sequence[str], limits: tuple[str, str], output: str, apart: str, temporary: str
    ) -> list[str]:
        """Outputs of int16 to bytes within the limits, each pixel ``apart`` behind the other."""
        lines = [f"vsetvli zero, zero, {self.bits8}"]
        lines += [f"vnclip.wi {one}, {one}, 0" for one in sums]
        return [*lines, *self.store_wide(sums, limits, output, apart, temporary, 8)]

    def store_wide(
        self,
        sums: Sequence[str],
        limits: tuple[str, str],
        output: str,
        apart: str,
        temporary: str,
        bits: int = 16,
    ) -> list[str]:
        """The same of outputs that have their size already."""
        lines = [f"vmax.vx {one}, {one}, {limits[0]}" for one in sums]
        lines += [f"vmin.vx {one}, {one}, {limits[1]}" for one in sums]
        lines += [f"mv {temporary}, {output}"]
        for number, one in enumerate(sums):
            lines += [f"add {temporary}, {temporary}, {apart}"] if number else []
            lines += [f"vse{bits}.v {one}, ({temporary})"]
        return lines


def tiles(sizes: Sequence[int], left: str, label: int, body: Sequence[Iterator[str]]) -> list[str]:
    """Loops over the tiles of a row of pixels: as many as fit of each size."""
    lines = []
    for number, (size, one) in enumerate(zip(sizes, body, strict=True), label):
        lines += [f"{number}0:", f"addi {left}, {left}, -{size}", f"bltz {left}, {number}9f"]
        lines += [*one, f"j {number}0b", f"{number}9:", f"addi {left}, {left}, {size}"]
    return lines


class Routine(NamedTuple):
    """A C function of assembly, which may change any register."""

    parameters: str
    lines: Sequence[str]

    def c_function(self, name: str, portable: str, condition: str = VECTORS) -> str:
        """The static C function; ``portable`` is its body where there are no vectors."""
        saved = [f"addi sp, sp, -{FRAME}"] + [f"sw {s}, {4 * i}(sp)" for i, s in enumerate(_SAVED)]
        restored = [f"lw {s}, {4 * i}(sp)" for i, s in enumerate(_SAVED)]
        whole = [*saved, "csrwi vxrm, 0", *self.lines, *restored, f"addi sp, sp, {FRAME}", "ret"]
        declared = " ".join(self.parameters.split()).split(", ")
        return naked_function(name, declared, whole, portable, condition, around=_AROUND)


def scaled_rows(tables: ConvolutionTables) -> tuple[Array, Array] | str:
    """Weights and the table of scaling, or why the kernels cannot round so.

    A channel of which every sum gives the same output becomes one without weights. Its bias is four
    times the output, of which the multiplier and the shift each take a half.
    """
    bias, multiplier = tables.bias.astype(np.int64), tables.multiplier.astype(np.int64)
    weights, right = tables.weights.copy(), -tables.shift.astype(np.int64)
    if int(right.min()) < 1:
        scale = tables.multiplier, tables.shift, tables.zero_point
        same = constant_outputs(tables.bias, weights, *scale)
        for channel in np.flatnonzero(right < 1):
            if int(channel) not in same:
                return f"a scale needs a right shift by {right[channel]}"
            weights[channel], right[channel], multiplier[channel] = 0, 1, 1 << 30
            bias[channel] = 4 * (same[int(channel)] - tables.zero_point)
    # Less than half, for every sum.
    is_zero = right > _LARGEST_SHIFT
    rows = bias, np.where(is_zero, 0, multiplier), np.minimum(right, _LARGEST_SHIFT)
    return weights, np.array(rows, dtype=np.int32)
