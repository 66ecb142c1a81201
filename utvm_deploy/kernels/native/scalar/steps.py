"""The chunks of a group of channels in assembly of RV32IM: no loop within a chunk.

The steps of the longest chunk follow each other. The first step of a chunk begins its
sums. Then the code jumps to where as many steps as are left end the row. So a step takes its loads,
products and additions, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Steps of a chunk at most.
MOST = 9
#: Pixels of the tile for which the table of weights knows the bytes of a step.
PIXELS = 3
_HALVES = range(2)
_STEP_BYTES = 4 * (2 + PIXELS + 2 * PIXELS * len(_HALVES))
#: Where the compiler takes it; Clang says that it has too few registers.
CONDITION = (
    "defined(__riscv) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && "
    "__riscv_xlen == 32 && !defined(__riscv_32e)"
)
# The sums of words, the rest of what is computed with; sums of 32 bits are left to the compiler.
_WORDS = tuple(f"a{n}" for n in range(2 * PIXELS))
_W, _X, _PRODUCT = ("a6", "a7"), "t0", "t1"
_PIXEL, _TABLE, _RAISED, _STEPS = "t2", "t3", "t4", "t5"


def header(steps: int) -> int:
    """The word before a chunk: steps, bytes of its words and this one, and where to jump to."""
    return steps | (8 * steps + 4) << 8 | (MOST - steps) * _STEP_BYTES << 16


def chunks(pitch: int) -> str:
    """The C statement: from ``scaling``, ``words`` and the pointer ``p0`` to the sums t, u."""
    sums = [f"{p}{h}" for p in range(PIXELS) for h in _HALVES]
    lines = "".join(f'    "{line}\\n"\n' for line in _lines(pitch, sums))
    outputs = ", ".join(f'[{kind}{one}] "=&r"({kind}{one})' for one in sums for kind in "tu")
    used = (*_WORDS, *_W, _X, _PRODUCT, _PIXEL, _TABLE, _RAISED, _STEPS, "memory")
    changed = ", ".join(f'"{name}"' for name in used)
    return (
        f'__asm__ volatile(\n{lines}    : {outputs}, [words] "+m"(words)\n'
        f'    : [p0] "m"(p0), [scaling] "m"(scaling)\n    : {changed});'
    )


def _lines(pitch: int, sums: list[str]) -> Iterator[str]:
    yield f"lw {_X}, %[scaling]"
    for h in _HALVES:
        yield f"lw %[t0{h}], {8 * h}({_X})"
        yield f"lw %[u0{h}], {8 * h + 4}({_X})"
    yield from (f"mv %[{kind}{one}], %[{kind}0{one[1]}]" for one in sums[2:] for kind in "tu")
    yield f"lw {_PIXEL}, %[p0]"
    yield f"lw {_TABLE}, %[words]"
    yield f"li {_RAISED}, {1 << 15}"
    yield f"lla {_STEPS}, 2f"
    yield f"lbu {_PRODUCT}, 0({_TABLE})"
    yield "1:"
    yield from _step(pitch, 0, 4, is_first=True)
    yield f"lbu {_X}, 1({_TABLE})"
    yield f"lhu {_W[0]}, 2({_TABLE})"
    yield f"add {_PIXEL}, {_PIXEL}, {_PRODUCT}"
    yield f"add {_TABLE}, {_TABLE}, {_X}"
    yield f"add {_W[0]}, {_W[0]}, {_STEPS}"
    yield f"jr {_W[0]}"
    yield from (".option push", ".option norvc", "2:")
    for left in range(MOST - 1, 0, -1):
        yield from _step(pitch, -left, -8 * left, is_first=False)
    yield ".option pop"
    yield f"lbu {_PRODUCT}, 0({_TABLE})"
    for one, word in zip(sums, _WORDS, strict=True):
        yield f"add %[t{one}], %[t{one}], {word}"
        yield f"srai {word}, {word}, 16"
        yield f"add %[u{one}], %[u{one}], {word}"
    yield f"bnez {_PRODUCT}, 1b"
    yield f"addi {_TABLE}, {_TABLE}, 4"
    yield f"sw {_TABLE}, %[words]"


def _step(pitch: int, at: int, word: int, *, is_first: bool) -> Iterator[str]:
    """The products of one depth: ``at`` from the pixel, ``word`` from the table."""
    yield f"lb {_X}, {at}({_PIXEL})"
    yield from (f"lw {_W[h]}, {word + 4 * h}({_TABLE})" for h in _HALVES)
    for p in range(PIXELS):
        word0, word1 = _WORDS[2 * p : 2 * p + 2]
        more = [f"lb {_X}, {(p + 1) * pitch + at}({_PIXEL})"] if p + 1 < PIXELS else []
        if is_first:
            yield from (f"mul {word0}, {_W[0]}, {_X}", f"mul {word1}, {_W[1]}, {_X}", *more)
            yield from (f"add {one}, {one}, {_RAISED}" for one in (word0, word1))
        else:
            yield from (f"mul {_PRODUCT}, {_W[0]}, {_X}", f"add {word0}, {word0}, {_PRODUCT}")
            yield from (f"mul {_PRODUCT}, {_W[1]}, {_X}", *more)
            yield f"add {word1}, {word1}, {_PRODUCT}"
