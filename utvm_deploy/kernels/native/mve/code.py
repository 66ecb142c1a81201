"""What the Helium routines have in common: when they can be used, and requantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__ARM_FEATURE_MVE) && defined(__GNUC__)"


class Lanes(NamedTuple):
    """How products of a vector are made; weights are int8."""

    lanes: int  # and the depth that one vector of weights covers
    pixel_bytes: int  # of an element
    start: str
    load_pixels: str
    load_weights: str
    multiply: str


BYTES = Lanes(
    16, 1, "dlstp.8", "vldrb.8 {}, [{}], #16", "vldrb.8 {}, [{}], #16", "vmladava.s8"
)  # fmt: skip
HALVES = Lanes(
    8, 2, "dlstp.16", "vldrh.16 {}, [{}], #16", "vldrb.s16 {}, [{}], #8", "vmladava.s16"
)  # fmt: skip


def requantized(
    vectors: Sequence[str], temporaries: Sequence[str], offset: int, has_left: bool
) -> list[str]:
    """Requantization of vectors of four sums; multipliers and shifts are at r12 + ``offset``.

    The reference rounds twice. VQRDMULH is its first step, floor(a * m / 2**31 + 1/2), and cannot
    saturate because multipliers are not negative. Its second, a right shift that rounds halves away
    from zero, is VRSHL (halves up) after one is taken off negative values: where the shift is 0, a
    mask of both signs leaves the value alone. Overwrites q0 and q1; ``temporaries`` may hold any.
    """
    code = [f"vldrw.32 q0, [r12, #{offset}]", f"vldrw.32 q1, [r12, #{offset + 16}]"]
    pairs = list(zip(vectors, temporaries, strict=True))
    if has_left:
        code.append(f"vldrw.32 {temporaries[0]}, [r12, #{offset + 32}]")
        code += [f"vshl.s32 {v}, {v}, {temporaries[0]}" for v in vectors]
    return [
        *code,
        *(f"vqrdmulh.s32 {v}, {v}, q0" for v in vectors),
        *(f"vand {t}, {v}, q1" for v, t in pairs),
        *(f"vshr.s32 {t}, {t}, #31" for _, t in pairs),
        *(f"vadd.i32 {v}, {v}, {t}" for v, t in pairs),
        *(f"vrshl.s32 {v}, {v}, q1" for v in vectors),
    ]


def requantized_once(vectors: Sequence[str], offset: int) -> list[str]:
    """The same of sums of products with int16: the high word of the product, rounded half up."""
    return [
        f"vldrw.32 q0, [r12, #{offset}]",
        f"vldrw.32 q1, [r12, #{offset + 16}]",
        *(f"vmulh.s32 {v}, {v}, q0" for v in vectors),
        *(f"vrshl.s32 {v}, {v}, q1" for v in vectors),
    ]


def quad_products(label: str, sums: Sequence[str], by: Lanes = BYTES) -> list[str]:
    """A pixel at r1 by four channels, added to ``sums``: weights as ``gemm.py`` lays them out.

    r7 points at the first two channels' and r3 at the others', r11 holds the depth. Overwrites q0
    to q2; r1, r3 and r7 end behind what was read.
    """
    return [
        f"{by.start} lr, r11",
        f"{label}:",
        by.load_pixels.format("q0", "r1"),
        by.load_weights.format("q1", "r7"),
        f"{by.multiply} {sums[0]}, q0, q1",
        by.load_weights.format("q2", "r7"),
        f"{by.multiply} {sums[1]}, q0, q2",
        by.load_weights.format("q1", "r3"),
        f"{by.multiply} {sums[2]}, q0, q1",
        by.load_weights.format("q2", "r3"),
        f"{by.multiply} {sums[3]}, q0, q2",
        f"letp lr, {label}b",
    ]
