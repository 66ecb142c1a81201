"""What the Helium routines share: the condition of their assembly, products, requantization."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import Memory, at, post, pre

#: When the preprocessor takes the assembly. Otherwise it takes the portable C.
CONDITION = "defined(__ARM_FEATURE_MVE) && defined(__GNUC__)"


@dataclass(frozen=True)
class PixelType:
    """How vectors of pixels, int8 or int16 by ``bits``, are multiplied by weights of int8."""

    bits: int

    @property
    def lanes(self) -> int:
        """Values of a pixel in a vector, and so weights that they are multiplied with."""
        return 128 // self.bits

    @property
    def size_bytes(self) -> int:
        """Bytes of one value of a pixel."""
        return self.bits // 8

    def loop(self, a: Assembler, count: str) -> AbstractContextManager[None]:
        """A loop over vectors of ``count`` values; lanes beyond the last one are switched off."""
        return a.hardware_loop(f"dlstp.{self.bits}", count)

    def load_pixels(self, a: Assembler, vector: str, pointer: str) -> None:
        """Load a vector of pixels and move the pointer past it."""
        load = a.vldrb_8 if self.bits == 8 else a.vldrh_16
        load(vector, post(pointer, 16))

    def load_weights(self, a: Assembler, vector: str, place: Memory) -> None:
        """Load the weights of a vector of pixels."""
        load = a.vldrb_8 if self.bits == 8 else a.vldrb_s16
        load(vector, place)

    def multiply(self, a: Assembler, total: str, weights: str, pixels: str) -> None:
        """Add the products of all lanes to a core register."""
        multiply = a.vmladava_s8 if self.bits == 8 else a.vmladava_s16
        multiply(total, weights, pixels)


INT8, INT16 = PixelType(8), PixelType(16)


def has_left_shift(shift: Array) -> bool:
    """Whether any channel is scaled by 1 or more, which takes a left shift."""
    return int(shift.max()) > 0


def scaling_rows(bias: Array, multiplier: Array, shift: Array, *, has_left: bool) -> Array:
    """[row, channel]: biases, and what ``requantize`` scales by."""
    rows = [bias, multiplier, np.minimum(shift, 0)]
    return np.array([*rows, np.maximum(shift, 0)] if has_left else rows, dtype=np.int32)


def multiply_four_channels(a: Assembler, sums: Sequence[str], by: PixelType = INT8) -> None:
    """Add the products of a pixel at r1 to the sums of four channels.

    Weights are as ``gemm.py`` lays them out: r7 points at those of the first two channels, r3
    behind the others'. r11 is the depth. Overwrites q0 to q2; r7 and r3 end between the pairs.
    """
    up, down = post("r7", by.lanes), pre("r3", -by.lanes)
    with by.loop(a, "r11"), a.scheduled(is_loop=True):
        by.load_pixels(a, "q0", "r1")
        for total, vector, place in zip(
            sums, ("q1", "q2", "q1", "q2"), (up, up, down, down), strict=True
        ):
            by.load_weights(a, vector, place)
            by.multiply(a, total, "q0", vector)


def requantize(
    a: Assembler,
    vectors: Sequence[str],
    temporaries: Sequence[str],
    offset: int,
    step: int,
    one: str,
    *,
    has_left: bool,
) -> None:
    """Requantize vectors of four sums each in place, as the reference does in two roundings.

    At r12 + ``offset`` are four multipliers, ``step`` bytes on right shifts, then left shifts if
    ``has_left``. Overwrites q0 and q1; the temporaries, two or more, may be any other registers.

    VQRDMULH is the first rounding, floor(a * m / 2**31 + 1/2). It cannot saturate, because
    multipliers are not negative. The second is a right shift that rounds halves away from zero.
    VRSHL rounds them up, so one is taken off negative values before: the high word of the value
    times 1. The factor is 0 where the shift is 0, as the value must stay as it is there. A product
    takes no time of the pipe that the other instructions need.
    """
    a.vldrw_32("q0", at("r12", offset))
    a.vldrw_32("q1", at("r12", offset + step))
    if has_left:
        a.vldrw_32(temporaries[0], at("r12", offset + 2 * step))
        for v in vectors:
            a.vshl_s32(v, v, temporaries[0])
    factor, *signs = temporaries
    a.mov(one, 1)
    a.vshr_u32(factor, "q1", 31)
    for v in vectors:
        a.vqrdmulh_s32(v, v, "q0")
    for v, sign in zip(vectors, cycle(signs), strict=False):
        a.vmulh_s32(sign, v, factor)
        a.vmla_s32(v, sign, one)
        a.vrshl_s32(v, v, "q1")


def requantize_once(
    a: Assembler, vectors: Sequence[str], table: str, offset: int, step: int
) -> None:
    """Requantize vectors of four sums of products with int16 in place, by one rounding.

    The result is the high word of a product, shifted right and rounded half up. At ``table`` +
    ``offset`` are four multipliers, ``step`` bytes on right shifts. Overwrites q0 and q1.
    """
    a.vldrw_32("q0", at(table, offset))
    a.vldrw_32("q1", at(table, offset + step))
    for v in vectors:
        a.vmulh_s32(v, v, "q0")
    for v in vectors:
        a.vrshl_s32(v, v, "q1")
