"""The memory of a model as a picture: layers from left to right, bytes from the top down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from utvm_deploy.base.readable import short
from utvm_deploy.results.pages.chart import MAP_HEIGHT, MAP_WIDTH, Block, block

#: Kind of use -> the class of its colour.
_COLOURS = {
    "activation": "one",
    "input": "four",
    "output": "four",
    "state": "three",
    "scratch": "two",
}
#: The room of a text in units of SVG: a letter's width, a line's height.
_LETTER, _LINE = 6.0, 11.0
#: A name of fewer letters says nothing. Then the bytes stand alone.
_LEAST_LETTERS = 6


def memory_values(
    uses: Sequence[Mapping[str, Any]], arena_bytes: int, operators: Sequence[str]
) -> dict[str, Any]:
    """What ``memory_map.html`` and the file show, of the uses of ``utvm compile --json``.

    ``operators`` has the kind of each layer.
    """
    layers = len(operators)
    size = layers, arena_bytes
    column = MAP_WIDTH / (layers or 1)
    blocks = [
        block(
            (int(use["first"]), int(use["last"])),
            (int(use["offset"]), int(use["offset"]) + int(use["bytes"])),
            size,
            _COLOURS.get(str(use["kind"]), "pale"),
            f"{_named(use)}: {use['bytes']:,} bytes at {use['offset']:,}, "
            f"layers {use['first']} to {use['last']}",
        )
        for use in uses
    ]
    axis = list(_axis(operators, column))
    return {
        "width": MAP_WIDTH,
        "height": MAP_HEIGHT,
        "layers": layers,
        "arena_bytes": arena_bytes,
        "blocks": blocks,
        "texts": list(_texts(uses, blocks, column)),
        "axis": axis,
        "below": round(_LINE + 7.5 * max((len(one["text"]) for one in axis), default=0)),
        "peak": _peak(uses, size),
        "legend": _legend({str(use["kind"]) for use in uses}),
    }


def operators_of(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kind of each layer of a verb's ``--json``."""
    return [str(layer.get("operator", "")) for layer in layers]


def live_bytes(spans: Iterable[tuple[int, int]]) -> int:
    """What spans from and up to a byte take together; what two of them share counts once."""
    total = end = 0
    for begin, behind in sorted(spans):
        total += max(behind - max(begin, end), 0)
        end = max(end, behind)
    return total


def _texts(
    uses: Sequence[Mapping[str, Any]], blocks: Sequence[Block], column: float
) -> Iterator[dict[str, Any]]:
    """The name and the bytes of uses, each in its first layer's column, so that none overlap."""
    is_upright = column < 2 * _LETTER * _LEAST_LETTERS
    ends: dict[float, float] = {}  # of the texts of a column
    for use, one in sorted(zip(uses, blocks, strict=True), key=lambda pair: pair[1].y):
        top = max(one.y, ends.get(one.x, 0.0))
        height = one.y + one.height - top
        across, along = (column, height) if is_upright else (height, column)
        letters = int(along / _LETTER) - 1
        count = f"{use['bytes']:,}"
        if across < _LINE or letters < len(count):
            continue
        left = letters - len(count) - 1
        text = f"{short(str(use['name']), left)} {count}" if left >= _LEAST_LETTERS else count
        ends[one.x] = top + (_LETTER * (len(text) + 1) if is_upright else _LINE + 2)
        x, y = (one.x + column / 2, top + 4) if is_upright else (one.x + 4, top + _LINE)
        yield {
            "x": round(x, 2),
            "y": round(y, 2),
            "is_upright": is_upright,
            "text": text,
            "kind": one.kind,
        }


def _axis(operators: Sequence[str], column: float) -> Iterator[dict[str, Any]]:
    """The numbers of the layers, with their operators where there is room for them."""
    each = max(1, -(-_LINE // column)) if column else 1
    for index in range(0, len(operators), int(each)):
        text = f"{index} {operators[index]}".rstrip() if each == 1 else str(index)
        yield {"x": round((index + 0.5) * column, 2), "text": text}


def _peak(uses: Sequence[Mapping[str, Any]], size: tuple[int, int]) -> dict[str, Any] | None:
    """The bytes that are in use at the peak, and a frame around each run of layers there."""
    live = [
        live_bytes(
            (int(use["offset"]), int(use["offset"]) + int(use["bytes"]))
            for use in uses
            if int(use["first"]) <= layer <= int(use["last"])
        )
        for layer in range(size[0])
    ]
    most = max(live, default=0)
    if not most:
        return None
    at = [layer for layer, count in enumerate(live) if count == most]
    starts = [layer for layer in at if layer - 1 not in at]
    ends = [layer for layer in at if layer + 1 not in at]
    runs = list(zip(starts, ends, strict=True))
    named = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)
    frames = [block(run, (0, size[1]), size, "peak", "") for run in runs]
    return {
        "frames": frames,
        "text": f"peak: {most:,} bytes, layer{'s' if len(at) > 1 else ''} {named}",
        "x": frames[0].x,
        "is_left": frames[0].x < MAP_WIDTH / 2,
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
