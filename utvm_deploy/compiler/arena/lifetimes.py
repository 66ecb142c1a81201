"""Which lifetimes overlap. A lifetime is the first and the last step of a value, both included."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate


def neighbours(lifetimes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """For each lifetime the positions of the others that overlap it, in ascending order.

    The work grows with the number of overlaps, not with the number of pairs. A model of many layers
    has few values alive at a time.
    """
    found: list[list[int]] = [[] for _ in lifetimes]
    alive: list[int] = []
    for position in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i][0]):
        first = lifetimes[position][0]
        alive = [other for other in alive if lifetimes[other][1] >= first]
        for other in alive:
            found[position].append(other)
            found[other].append(position)
        alive.append(position)
    for positions in found:
        positions.sort()
    return found


def alive_bytes(
    lifetimes: Sequence[tuple[int, int]], sizes: Sequence[int], steps: Sequence[int]
) -> list[int]:
    """The bytes of all values that are alive, at each of ``steps``."""
    born, born_bytes = _running_total([first for first, _ in lifetimes], sizes)
    ended, ended_bytes = _running_total([last for _, last in lifetimes], sizes)
    return [
        born_bytes[bisect_right(born, step)] - ended_bytes[bisect_left(ended, step)]
        for step in steps
    ]


def _running_total(steps: Sequence[int], sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The steps in ascending order, and the bytes before each of them."""
    ordered = sorted(zip(steps, sizes, strict=True))
    return [step for step, _ in ordered], [0, *accumulate(size for _, size in ordered)]
