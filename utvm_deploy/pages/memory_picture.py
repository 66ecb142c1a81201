"""The memory of a model as a picture: layers from left to right, bytes from the top down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from utvm_deploy.pages.chart import MAP_HEIGHT, MAP_WIDTH, block
from utvm_deploy.pages.render import render, short

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
                f"{_named(use)}: {use['bytes']:,} bytes at {use['offset']:,}, "
                f"layers {use['first']} to {use['last']}",
            )
            for use in uses
        ],
        "legend": _legend({str(use["kind"]) for use in uses}),
    }


def _named(use: Mapping[str, Any]) -> str:
    """The kind and the name of a use; names of scratch begin with their kind."""
    name = short(str(use["name"]))
    return name if name.startswith(f"{use['kind']} ") else f"{use['kind']} {name}"


def _legend(kinds: Set[str]) -> list[tuple[str, str]]:
    """Each colour of the picture with the kinds of uses that have it."""
    named: dict[str, list[str]] = {}
    for kind, colour in _COLOURS.items():
        if kind in kinds:
            named.setdefault(colour, []).append(kind)
    return [(colour, " and ".join(them)) for colour, them in named.items()]


def arena_svg(
    model: str, board: str, uses: Sequence[Mapping[str, Any]], arena_bytes: int, layers: int
) -> str:
    """The map as an SVG file that needs no style from outside."""
    return render(
        "memory_picture.svg",
        found={"model": model, "board": board},
        map=memory_values(uses, arena_bytes, layers),
    )
