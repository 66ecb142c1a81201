"""A profile as one HTML page: bars and figures per layer, hotspots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.pages.chart import bar
from utvm_deploy.pages.render import number, render
from utvm_deploy.profiling.bound import Bound
from utvm_deploy.profiling.hotspots import Hotspot
from utvm_deploy.profiling.layer_costs import LayerProfile, Profile

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


def profile_html(
    found: Profile, bounds: Sequence[Bound | None] | None, hotspots: Sequence[Hotspot] = ()
) -> str:
    """The whole page."""
    named = {key: name for key, name in _FIGURES.items() if key in found.figures}
    each = bounds or [None] * len(found.layers)
    longest = max((item.ticks for item in found.layers), default=0)
    heads = [">layer", "operator", "time", f">{found.unit_label}", ">per MAC"]
    heads += [f">{name}" for name in named.values()] + ([">bound"] if any(each) else [])
    rows = [
        _row(found, item, bound, longest, list(named), has_bounds=any(each))
        for item, bound in zip(found.layers, each, strict=True)
    ]
    return render("profile.html", found=found, heads=heads, rows=rows, hotspots=hotspots)


def _row(
    found: Profile,
    item: LayerProfile,
    bound: Bound | None,
    longest: int,
    figures: Sequence[str],
    *,
    has_bounds: bool,
) -> dict[str, Any]:
    core = item.figures.get("core", item.ticks)
    bars = bar(item.ticks, longest, "two", "ticks"), bar(core, longest, "one", "core")
    return {
        "item": item,
        "kernel": item.layer.kernel.removeprefix(f"{found.model}_"),
        "bars": bars if core != item.ticks else bars[1:],
        "mark": None if bound is None else bar(bound.memory, longest, "three", "bound"),
        "cells": [
            *(number(item.ticks), number(item.ticks_per_mac, 2)),
            *(number(item.figures[key]) for key in figures),
            *([number(None if bound is None else bound.memory)] if has_bounds else []),
        ],
    }
