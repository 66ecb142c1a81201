"""The memory of a model as a picture: layers from left to right, bytes from the top down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.pages.chart import MAP_HEIGHT, MAP_WIDTH, block
from utvm_deploy.pages.render import render

#: Kind of use -> the class of its colour.
_COLOURS = {
    "activation": "one",
    "input": "four",
    "output": "four",
    "state": "three",
    "scratch": "two",
}


def memory_values(
    uses: Sequence[Mapping[str, Any]], arena_bytes: int, layers: int
) -> dict[str, Any]:
    """What ``memory_map.html`` shows; ``uses`` are those of ``utvm compile --json``."""
    size = layers, arena_bytes
    return {
        "width": MAP_WIDTH,
        "height": MAP_HEIGHT,
        "layers": layers,
        "arena_bytes": arena_bytes,
        "blocks": [
            block(
                (int(use["first"]), int(use["last"])),
                (int(use["offset"]), int(use["offset"]) + int(use["bytes"])),
                size,
                _COLOURS.get(str(use["kind"]), "pale"),
                f"{use['kind']} {use['name']}: {use['bytes']:,} bytes at {use['offset']:,}, "
                f"layers {use['first']} to {use['last']}",
            )
            for use in uses
        ],
        "kinds": [kind for kind in _COLOURS if any(use["kind"] == kind for use in uses)],
        "colours": _COLOURS,
    }


def arena_svg(
    model: str, board: str, uses: Sequence[Mapping[str, Any]], arena_bytes: int, layers: int
) -> str:
    """The map as an SVG file that needs no style from outside."""
    return render(
        "memory_picture.svg",
        found={"model": model, "board": board},
        map=memory_values(uses, arena_bytes, layers),
    )
