"""A profile as one HTML page: bars and figures per layer, hotspots.

It is made from the result that ``utvm profile --json`` prints, so that a stored result has the same
page as a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.pages.chart import bar
from utvm_deploy.pages.render import number, render

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


def profile_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """What ``profile_body.html`` shows."""
    layers = result["layers"]
    named = {key: name for key, name in _FIGURES.items() if key in result["figures"]}
    unit = str(result["tick_unit"])
    unit_label = f"modelled {unit}" if result["is_modelled"] else unit
    has_bounds = any(layer["bound"] for layer in layers)
    longest = max((layer["ticks"] for layer in layers), default=0)
    heads = [">layer", "operator", "time", f">{unit_label}", ">per MAC"]
    heads += [f">{name}" for name in named.values()] + ([">bound"] if has_bounds else [])
    prefix = f"{result['model']}_"
    return {
        "found": result,
        "unit_label": unit_label,
        "heads": heads,
        "rows": [_row(layer, prefix, longest, list(named), has_bounds) for layer in layers],
        "hotspots": result.get("hot", ()),
    }


def _row(
    layer: Mapping[str, Any],
    prefix: str,
    longest: int,
    figures: Sequence[str],
    has_bounds: bool,
) -> dict[str, Any]:
    ticks, bound = layer["ticks"], layer["bound"]
    core = layer["figures"].get("core", ticks)
    bars = bar(ticks, longest, "two", "ticks"), bar(core, longest, "one", "core")
    return {
        "index": layer["index"],
        "operator": layer["operator"],
        "kernel": str(layer["kernel"]).removeprefix(prefix),
        "why": layer["why"],
        "bars": bars if core != ticks else bars[1:],
        "mark": None if bound is None else bar(bound["memory"], longest, "three", "bound"),
        "cells": [
            *(number(ticks), number(layer["ticks_per_mac"], 2)),
            *(number(layer["figures"].get(key)) for key in figures),
            *([number(None if bound is None else bound["memory"])] if has_bounds else []),
        ],
    }
