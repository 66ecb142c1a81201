"""A comparison as one HTML page: for each model, the table of figures that all reports share.

It is made from the object that ``utvm bench --json`` prints, so that a server shows the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.results.comparing.facts import MEASURED, library_of
from utvm_deploy.results.pages.chart import bar
from utvm_deploy.results.pages.figure_table import (
    Column,
    FigureTable,
    Line,
    column,
    figure_table,
    ratio_cell,
    share,
)
from utvm_deploy.results.pages.render import number, render
from utvm_deploy.results.profiling.placement import Placement


def comparison_html(result: Mapping[str, Any]) -> str:
    """The whole page."""
    return render("comparison.html", **comparison_values(result))


def comparison_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """What ``comparison_body.html`` shows."""
    return {
        "found": result,
        "models": [_model(model) for model in result["models"]],
        "failed": result["failed"],
        "library": next((library_of(one["engine"]) for one in result["models"]), "CMSIS-NN"),
    }


def recorded_or_measured(model: Mapping[str, Any]) -> str:
    """A sentence on where the library's figures of a model come from, from ``bench --json``."""
    if model["source"] == MEASURED:
        return f"Measured with ours: {model['engine']}."
    return f"Recorded once, for equal layer shapes: {model['engine']}."


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    figure = next(iter(model["ours"]))
    return {
        "found": model,
        "source": recorded_or_measured(model),
        "unit_label": f"modelled {figure}" if model["is_modelled"] else figure,
        "table": _layers(model, figure),
        "builds": _builds(model),
        "ours_in": _placement(model["placement"]["ours"]),
        "theirs_in": _placement(model["placement"]["theirs"]),
    }


def _layers(model: Mapping[str, Any], figure: str) -> FigureTable:
    layers, library = model["layers"], library_of(model["engine"])
    ours = [layer["ours"][figure] for layer in layers]
    theirs = [(layer["theirs"] or {}).get(figure) for layer in layers]
    longest = max((*ours, *(one for one in theirs if one)), default=0)
    lines = [
        Line(
            layer["operator"],
            layer["kernel"],
            (bar(left, longest, "one", "ours"), bar(right, longest, "two", library)),
            layer["index"],
            are_beside=True,
        )
        for layer, left, right in zip(layers, ours, theirs, strict=True)
    ]
    whole = model["ours"][figure]
    columns = [
        column("ours", list(map(number, ours)), number(whole)),
        column("share %", [share(one, whole) for one in ours], share(whole, whole)),
        column(library, list(map(number, theirs)), number((model["theirs"] or {}).get(figure))),
        Column(
            "ratio",
            tuple(ratio_cell(layer["ratio"]) for layer in layers),
            ratio_cell(model["ratio"]),
        ),
        column("MACs", [number(layer["macs"] or None) for layer in layers], is_optional=True),
        *_other_ratios(model),
        column("output", list(map(_agreement, layers)), is_number=False, is_optional=True),
        column(
            f"{library}'s function",
            [layer["their_kernel"] or _ours(model) for layer in layers],
            is_number=False,
            is_optional=True,
        ),
    ]
    return figure_table(f"layers of {model['name']}", lines, columns)


def _ours(model: Mapping[str, Any]) -> str:
    return "ours" if model["source"] == MEASURED else ""


def _other_ratios(model: Mapping[str, Any]) -> list[Column]:
    """Of the figures that do not decide, such as instructions; equal ones are left out."""
    return [
        Column(
            f"ratio of {name}",
            tuple(ratio_cell(layer.get(f"ratio_{name}")) for layer in model["layers"]),
            ratio_cell(model.get(f"ratio_{name}")),
            is_optional=True,
        )
        for name in model["figures"][1:]
    ]


def _builds(model: Mapping[str, Any]) -> dict[str, Any] | None:
    """All builds of the library, without figures that repeat another one."""
    builds: Sequence[Mapping[str, Any]] = model["builds"]
    if not builds:
        return None
    figures: dict[tuple[int, ...], str] = {}
    for name in model["figures"]:
        figures.setdefault(tuple(build["theirs"].get(name, 0) for build in builds), name)
    return {
        "heads": [
            f"build of {library_of(model['engine'])}",
            *(f">{name}" for name in figures.values()),
            *("layers that differ", ""),
        ],
        "figures": list(figures.values()),
        "rows": builds,
    }


def agreement(differing: int | None, output_bytes: int) -> str:
    """Whether the outputs are equal, in a phrase."""
    if differing is None:
        return "not compared"
    return f"{differing} of {output_bytes} bytes differ" if differing else "equal"


def _placement(placement: Mapping[str, str] | None) -> str | None:
    """Where an engine's data lay; None if it is not known."""
    return None if placement is None else str(Placement(**placement))


def _agreement(layer: Mapping[str, Any]) -> str:
    differing = layer["differing_bytes"]
    return "" if differing is None else agreement(differing, layer["output_bytes"])
