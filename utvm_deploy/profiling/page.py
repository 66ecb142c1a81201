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


def profile_values(
    result: Mapping[str, Any], bench: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What ``profile_body.html`` shows; ``bench`` is the same model of ``utvm bench --json``.

    Columns of figures that repeat another column, or are 0 in all rows, are left out.
    """
    layers = result["layers"]
    named = _telling(layers, [key for key in _FIGURES if key in result["figures"]])
    unit = str(result["tick_unit"])
    unit_label = f"modelled {unit}" if result["is_modelled"] else unit
    has_bounds = any(layer["bound"] for layer in layers)
    longest = max((layer["ticks"] for layer in layers), default=0)
    theirs = {} if bench is None else {one["index"]: one for one in bench["layers"]}
    heads = ["layer", "operator", "time", unit_label, "share %", "MACs", "per MAC"]
    heads += ["bound", "x bound"] if has_bounds else []
    heads += ["CMSIS-NN", "ratio"] if theirs else []
    heads += [_FIGURES[key] for key in named]
    prefix = f"{result['model']}_"
    rows = [_row(result, layer, prefix, longest, named, has_bounds, theirs) for layer in layers]
    return {
        "found": result,
        "unit_label": unit_label,
        "heads": [head if head in ("operator", "time") else f">{head}" for head in heads],
        "rows": rows,
        "foot": _foot(result, named, has_bounds, bench if theirs else None) if layers else (),
        "has_misses": any(len(row["bars"]) > 1 for row in rows),
        "hotspots": result.get("hot", ()),
    }


def _telling(layers: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The figures whose column differs from all columns before it, and from zeros."""
    seen = {
        tuple(layer["ticks"] for layer in layers),
        tuple(0 for _ in layers),
        tuple(None for _ in layers),
    }
    told = []
    for key in keys:
        column = tuple(layer["figures"].get(key) for layer in layers)
        if column not in seen:
            told.append(key)
            seen.add(column)
    return told


def _row(
    result: Mapping[str, Any],
    layer: Mapping[str, Any],
    prefix: str,
    longest: int,
    figures: Sequence[str],
    has_bounds: bool,
    theirs: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    ticks, bound = layer["ticks"], layer["bound"]
    core = layer["figures"].get("core", ticks)
    bars = bar(ticks, longest, "two", "ticks"), bar(core, longest, "one", "core")
    cells = [number(ticks), _share(ticks, result["ticks"]), number(layer["macs"] or None)]
    cells += [number(layer["ticks_per_mac"], 2)]
    if has_bounds:
        cells += _bound_cells(ticks, None if bound is None else bound["memory"])
    if theirs:
        cells += _their_cells(theirs.get(layer["index"]), result["tick_unit"])
    cells += [number(layer["figures"].get(key)) for key in figures]
    return {
        "index": layer["index"],
        "operator": layer["operator"],
        "kernel": str(layer["kernel"]).removeprefix(prefix),
        "why": layer["why"],
        "bars": bars if core != ticks else bars[1:],
        "mark": None if bound is None else bar(bound["memory"], longest, "three", "bound"),
        "cells": cells,
    }


def _foot(
    result: Mapping[str, Any],
    figures: Sequence[str],
    has_bounds: bool,
    bench: Mapping[str, Any] | None,
) -> list[str]:
    """The whole model, which takes a little more than its layers: calls, and code between them."""
    macs = result["macs"]
    cells = ["", "whole model", "", number(result["ticks"]), "100.0", number(macs or None)]
    cells += [number(result["ticks"] / macs if macs else None, 2)]
    if has_bounds:
        bounds = [layer["bound"]["memory"] for layer in result["layers"] if layer["bound"]]
        whole = sum(bounds) if len(bounds) == len(result["layers"]) else None
        cells += _bound_cells(result["ticks"], whole)
    if bench is not None:
        whole_of = bench["theirs"] or {}
        cells += [number(whole_of.get(result["tick_unit"])), number(bench["ratio"], 2)]
    cells += [number(result["figures"].get(key)) for key in figures]
    return cells


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else ""


def _bound_cells(ticks: int, bound: int | None) -> list[str]:
    return [number(bound), number(ticks / bound if bound else None, 2)]


def _their_cells(layer: Mapping[str, Any] | None, unit: str) -> list[str]:
    """CMSIS-NN's time of a layer, and over ours."""
    if layer is None or not layer["theirs"]:
        return ["", ""]
    return [number(layer["theirs"].get(unit)), number(layer["ratio"], 2)]
