"""A profile as one HTML page: bars and figures per layer, hotspots.

It is made from the result that ``utvm profile --json`` prints, so that a stored result has the same
page as a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from utvm_deploy.results.pages.chart import bar
from utvm_deploy.results.pages.figure_table import (
    Column,
    Line,
    column,
    figure_table,
    ratio_cell,
    share,
)
from utvm_deploy.results.pages.render import number, render
from utvm_deploy.results.profiling.summary import NPU, npu_lines, words_in

#: Columns of figures next to the bars, if they were counted.
_FIGURES = {
    "core": "core",
    "pessimistic": "pessimistic",
    "rich": "rich",
    "instructions": "instructions",
    "dcache_misses_flash": "misses, flash",
    "dcache_misses_ram": "misses, RAM",
    "dcache_store_misses": "misses, stores",
}


def profile_html(result: Mapping[str, Any]) -> str:
    """The whole page."""
    return render("profile.html", **profile_values(result))


def profile_values(
    result: Mapping[str, Any], bench: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What ``profile_body.html`` shows; ``bench`` is the same model of ``utvm bench --json``."""
    layers = result["layers"]
    unit = str(result["tick_unit"])
    unit_label = f"modelled {unit}" if result["is_modelled"] else unit
    longest = max((layer["ticks"] for layer in layers), default=0)
    lines = [_line(layer, f"{result['model']}_", longest) for layer in layers]
    columns = [
        column(unit_label, [number(layer["ticks"]) for layer in layers], number(result["ticks"])),
        column(
            NPU,
            [number(layer.get("npu_cycles")) for layer in layers],
            number(result.get("npu_cycles")),
            is_optional=True,
        ),
        *_work(result),
        *_bounds(result),
        *_theirs(result, bench),
        *(
            column(
                head,
                [number(layer["figures"].get(key)) for layer in layers],
                number(result["figures"].get(key)),
                is_optional=True,
            )
            for key, head in _FIGURES.items()
            if key in result["figures"]
        ),
    ]
    table = figure_table("layers", lines, columns)
    words = words_in(table.heads, (f"{line.name} {line.why}" for line in lines))
    return {
        "found": result,
        "unit_label": unit_label,
        "table": replace(table, words=words),
        "has_misses": any(len(line.bars) > 1 for line in lines),
        "hotspots": result.get("hot", ()),
        "npu": npu_lines(result),
    }


def _line(layer: Mapping[str, Any], prefix: str, longest: int) -> Line:
    ticks, bound = layer["ticks"], layer["bound"]
    core = layer["figures"].get("core", ticks)
    bars = bar(ticks, longest, "two", "ticks"), bar(core, longest, "one", "core")
    strips = layer.get("strips", 0)
    return Line(
        f"{layer['operator']}, {strips} strips" if strips else layer["operator"],
        str(layer["kernel"]).removeprefix(prefix),
        bars if core != ticks else bars[1:],
        layer["index"],
        layer["why"],
        None if bound is None else bar(bound["memory"], longest, "three", "bound"),
    )


def _work(result: Mapping[str, Any]) -> list[Column]:
    """The share of each layer, and its multiply-accumulates.

    The whole model takes a little more than its layers: calls, and code between them.
    """
    layers, ticks, macs = result["layers"], result["ticks"], result["macs"]
    return [
        column("share %", [share(one["ticks"], ticks) for one in layers], share(ticks, ticks)),
        column("MACs", [number(one["macs"] or None) for one in layers], number(macs or None)),
        column(
            "per MAC",
            [number(one["ticks_per_mac"], 2) for one in layers],
            number(ticks / macs if macs and result.get("npu_cycles") is None else None, 2),
        ),
    ]


def _bounds(result: Mapping[str, Any]) -> list[Column]:
    """What no kernel can be faster than, and the time over it."""
    layers = result["layers"]
    bounds = [layer["bound"] and layer["bound"]["memory"] for layer in layers]
    if not any(bounds):
        return []
    whole = sum(bounds) if all(bound is not None for bound in bounds) else None
    over = [
        number(one["ticks"] / b if b else None, 2) for one, b in zip(layers, bounds, strict=True)
    ]
    return [
        column("bound", [number(bound) for bound in bounds], number(whole)),
        column("x bound", over, number(result["ticks"] / whole if whole else None, 2)),
    ]


def _key(layer: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> object:
    """What a layer has in common with the same one of ``utvm bench``, which has no strips."""
    if any(one.get("strips") for one in layers):
        return layer["operator"], layer["name"]
    return layer["index"]


def _theirs(result: Mapping[str, Any], bench: Mapping[str, Any] | None) -> list[Column]:
    """CMSIS-NN's time of each layer, and over ours."""
    if bench is None:
        return []
    unit, layers = result["tick_unit"], result["layers"]
    known = {_key(one, layers): one for one in bench["layers"]}
    theirs = [known.get(_key(layer, layers)) for layer in layers]
    return [
        column(
            "CMSIS-NN",
            [number((one["theirs"] or {}).get(unit)) if one else "" for one in theirs],
            number((bench["theirs"] or {}).get(unit)),
        ),
        Column(
            "ratio",
            tuple(ratio_cell(one["ratio"] if one else None) for one in theirs),
            ratio_cell(bench["ratio"]),
        ),
    ]
