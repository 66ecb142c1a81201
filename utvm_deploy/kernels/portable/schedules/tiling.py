"""Register tiles of generic C: the number of outputs that are accumulated at once.

A tile of P pixels by C channels needs P + C loads for P * C multiply-accumulates, all of whose
accumulators should stay in core registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# A compiler may use 13 registers of Cortex-M. Two hold pointers and one the end of the loop; the
# others hold accumulators and loaded values.
MAX_ACCUMULATORS = 8
# An FPU has 32 registers of float32.
MAX_FLOAT_ACCUMULATORS = 16


@dataclass(frozen=True)
class RegisterTile:
    """Outputs that are computed together."""

    pixels: int
    channels: int

    @property
    def label(self) -> str:
        """Such as ``4x2``."""
        return f"{self.pixels}x{self.channels}"


def tiles(pixels: int, channels: int, most: int = MAX_ACCUMULATORS * 3 // 2) -> list[RegisterTile]:
    """Every tile of at most ``most`` outputs that divides both extents evenly.

    By default, some of the tiles need a few more registers than there are.
    """
    return [
        RegisterTile(p, c) for p in divisors(pixels) for c in divisors(channels) if p * c <= most
    ]


def choose_tile(pixels: int, channels: int, most: int = MAX_ACCUMULATORS) -> RegisterTile:
    """The tile with the fewest loads per multiply that divides both extents evenly."""
    # Among equal tiles, one with more channels reads a channel's weights fewer times.
    return min(
        tiles(pixels, channels, most),
        key=lambda t: ((t.pixels + t.channels) / (t.pixels * t.channels), -t.channels),
    )


def divisors(extent: int) -> list[int]:
    """The divisors of ``extent`` that can be a side of a tile."""
    return [d for d in range(1, MAX_ACCUMULATORS + 1) if extent % d == 0]


def schedule_accumulation(
    sch: Any, block: Any, reduction: Sequence[Any], tile: Sequence[Any]
) -> None:
    """Reduce over the loops ``reduction``, outermost first, and unroll all outputs of the tile."""
    sch.reorder(*reduction, *tile)
    init = sch.decompose_reduction(block, reduction[0])
    for loop in (*sch.get_loops(init)[-len(tile) :], *tile):
        sch.unroll(loop)
