"""What the Helium routines have in common: when they can be used, and requantization."""

from __future__ import annotations

from collections.abc import Sequence

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__ARM_FEATURE_MVE) && defined(__GNUC__)"


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


def quad_products(label: str, sums: Sequence[str]) -> list[str]:
    """A pixel at r1 by four channels, added to ``sums``: weights as ``gemm.py`` lays them out.

    r7 points at the first two channels' and r3 at the others', r11 holds the depth. Overwrites q0
    to q2; r1, r3 and r7 end behind what was read.
    """
    return [
        "dlstp.8 lr, r11",
        f"{label}:",
        "vldrb.8 q0, [r1], #16",
        "vldrb.8 q1, [r7], #16",
        f"vmladava.s8 {sums[0]}, q0, q1",
        "vldrb.8 q2, [r7], #16",
        f"vmladava.s8 {sums[1]}, q0, q2",
        "vldrb.8 q1, [r3], #16",
        f"vmladava.s8 {sums[2]}, q0, q1",
        "vldrb.8 q2, [r3], #16",
        f"vmladava.s8 {sums[3]}, q0, q2",
        f"letp lr, {label}b",
    ]
