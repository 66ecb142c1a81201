"""Choice of register tiles for generic C: how many outputs are accumulated at once.

A tile of P pixels by C channels needs P + C loads for P * C multiply-accumulates, all of whose
accumulators should stay in core registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Of the 13 registers a compiler may use on Cortex-M, two hold pointers, one the end of the loop and
# the rest accumulators and what was just loaded.
MAX_ACCUMULATORS = 8


@dataclass(frozen=True)
class RegisterTile:
    """Outputs that are computed together."""

    pixels: int
    channels: int

    @property
    def label(self) -> str:
        """Such as ``4x2``."""
        return f"{self.pixels}x{self.channels}"


def tiles(pixels: int, channels: int) -> list[RegisterTile]:
    """Every tile that divides both extents evenly and fits registers, or nearly does."""
    return [
        RegisterTile(p, c)
        for p in divisors(pixels)
        for c in divisors(channels)
        if p * c <= MAX_ACCUMULATORS + MAX_ACCUMULATORS // 2
    ]


def choose_tile(pixels: int, channels: int) -> RegisterTile:
    """The tile with the fewest loads per multiply that divides both extents evenly."""
    candidates = [
        RegisterTile(p, c)
        for p in divisors(pixels)
        for c in divisors(channels)
        if p * c <= MAX_ACCUMULATORS
    ]
    # Ties go to more channels: a channel's weights are then read fewer times.
    return min(
        candidates,
        key=lambda t: ((t.pixels + t.channels) / (t.pixels * t.channels), -t.channels),
    )


def divisors(extent: int) -> list[int]:
    """All divisors that could be a side of a tile."""
    return [d for d in range(1, MAX_ACCUMULATORS + 1) if extent % d == 0]


def schedule_accumulation(
    sch: Any, block: Any, reduction: Sequence[Any], tile: Sequence[Any]
) -> None:
    """Reduce over ``reduction``, outermost first, with all outputs of the tile unrolled inside."""
    sch.reorder(*reduction, *tile)
    init = sch.decompose_reduction(block, reduction[0])
    for loop in (*sch.get_loops(init)[-len(tile) :], *tile):
        sch.unroll(loop)
