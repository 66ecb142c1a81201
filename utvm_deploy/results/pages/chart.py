"""The geometry of bars, curves and maps: numbers that templates put into SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Width and height of a curve in units of SVG; the page scales it.
CURVE_WIDTH, CURVE_HEIGHT = 720, 260
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
#: Of a map of memory: layers from left to right, bytes from the top down.
MAP_WIDTH, MAP_HEIGHT = 720, 400
_LEAST_HEIGHT = 2.0  # that is seen


@dataclass(frozen=True)
class Bar:
    """A bar of a row: its share of the longest in percent, and the class of its colour."""

    percent: float
    kind: str  # a class of ``style.css``
    label: str  # what a reader hears


def bar(value: float | None, longest: float, kind: str, label: str) -> Bar:
    """A bar for a value; None is a bar of no length."""
    share = 100 * (value or 0) / longest if longest else 0.0
    return Bar(round(share, 2), kind, f"{label}: {value or 0:,.0f}")


def steps(points: Sequence[tuple[float, float]], width: float, height: float, top: float) -> str:
    """The path of a curve that keeps each value until the next point.

    ``points`` are (x, y) with growing x; the last x is at the right end, ``top`` at the upper end.
    """
    right = points[-1][0] or 1

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return width * point[0] / right, height - height * point[1] / (top or 1)

    (x, y), *others = map(place, points)
    path = f"M{x:.1f},{y:.1f}"
    return path + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others) + f"H{width:.1f}"


@dataclass(frozen=True)
class Block:
    """A rectangle of a map, in units of SVG."""

    x: float
    y: float
    width: float
    height: float
    kind: str  # a class of ``style.css``
    label: str


def block(
    columns: tuple[int, int], rows: tuple[int, int], size: tuple[int, int], kind: str, label: str
) -> Block:
    """A rectangle over columns first..last and over rows from..to, of ``size`` columns and rows."""
    across, down = MAP_WIDTH / (size[0] or 1), MAP_HEIGHT / (size[1] or 1)
    (first, last), (start, end) = columns, rows
    x, y = round(first * across, 2), round(start * down, 2)
    width, height = round((last - first + 1) * across, 2), round((end - start) * down, 2)
    height = max(height, _LEAST_HEIGHT)
    return Block(x, y, width, height, kind, label)


def line(values: Sequence[float], width: float, height: float) -> list[tuple[float, float]]:
    """The points of a line through values at equal distances, in units of SVG.

    The line takes the whole height; equal values are in the middle.
    """
    least, most = min(values), max(values)
    across = width / (len(values) - 1) if len(values) > 1 else 0.0
    return [
        (
            round(place * across if across else width / 2, 1),
            round(height * (most - value) / (most - least) if most > least else height / 2, 1),
        )
        for place, value in enumerate(values)
    ]
