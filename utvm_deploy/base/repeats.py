"""Runs of equal steps in a sequence: what a loop can do, or what several copies should share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Repeat:
    """Items that come again: each of them but the last ``period`` equals the one a period later."""

    first: int
    period: int
    length: int  # at least two periods; the last step may be a part of one

    @property
    def steps(self) -> int:
        """How often the whole period comes."""
        return self.length // self.period

    @property
    def end(self) -> int:
        """The item after the last."""
        return self.first + self.length


def repeats(keys: Sequence[Hashable], most_period: int | None = None) -> list[Repeat]:
    """The repeats of a sequence that do not overlap, those first that save most items."""
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    found = [
        Repeat(first, period, length + period)
        for period in range(1, min(most_period or len(ids), len(ids) // 2) + 1)
        for first, length in _runs(ids[:-period] == ids[period:])
        if length >= period
    ]
    kept: list[Repeat] = []
    while found:
        best = min(found, key=lambda one: (-(one.steps - 1) * one.period, one.period, one.first))
        kept.append(best)
        found = [part for one in found for part in _without(one, best)]
    return sorted(kept, key=lambda one: one.first)


def joined(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The groups of names that pairs put together."""
    groups: dict[str, list[str]] = {}
    for one, other in pairs:
        left, right = (groups.setdefault(name, [name]) for name in (one, other))
        if left is not right:
            left += right
            groups |= dict.fromkeys(right, left)
    return list({id(group): group for group in groups.values()}.values())


def _without(one: Repeat, taken: Repeat) -> list[Repeat]:
    """The rest of a repeat, before and behind another one."""
    ends = (one.first, min(one.end, taken.first)), (max(one.first, taken.end), one.end)
    return [
        Repeat(first, one.period, end - first)
        for first, end in dict.fromkeys(ends)
        if end - first >= 2 * one.period
    ]


def _runs(equal: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """First item and length of each run of true ones."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    return [(int(first), int(end - first)) for first, end in edges.reshape(-1, 2)]
