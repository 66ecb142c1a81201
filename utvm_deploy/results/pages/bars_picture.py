"""Bars with their names and values as an SVG file: what each layer takes, for example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.results.pages.render import number, render

_WIDTH = 420  # of the longest bar, in units of SVG
_LETTERS = 34  # of a name
_COLOURS = ("one", "two", "three", "four")
#: More rows make a picture that nobody can read; the longest are kept.
MOST_BARS = 60


def bars_svg(
    title: str, rows: Sequence[tuple[str, Sequence[float | None]]], kinds: Sequence[str]
) -> str:
    """A bar for each value of each row, ``kinds`` being what the values of a row are.

    Rows keep their order. Of more than ``MOST_BARS`` the longest are shown.
    """
    shown = list(rows)
    if len(shown) > MOST_BARS:
        longest = sorted(shown, key=lambda row: -_most(row[1]))[:MOST_BARS]
        kept = {id(row) for row in longest}
        shown = [row for row in shown if id(row) in kept]
    most = max((_most(values) for _, values in shown), default=0.0) or 1.0
    return render(
        "bars_picture.svg",
        title=title,
        kinds=list(zip(kinds, _COLOURS, strict=False)),
        width=_WIDTH,
        rows=[
            {
                "name": name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…",
                "bars": [
                    {
                        "width": round(_WIDTH * (value or 0) / most, 1),
                        "text": number(value, 0 if most >= 100 else 2),
                        "colour": colour,
                    }
                    for value, colour in zip(values, _COLOURS, strict=False)
                ],
            }
            for name, values in shown
        ],
        each=len(kinds),
        left_out=len(rows) - len(shown),
    )


def _most(values: Sequence[float | None]) -> float:
    return max((value or 0.0 for value in values), default=0.0)


def layer_name(layer: Mapping[str, object]) -> str:
    """How a picture names a layer: its number and its operator."""
    return f"{layer['index']} {layer['operator']}"
