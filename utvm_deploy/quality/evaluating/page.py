"""An evaluation as one HTML page, made from the object that ``utvm eval --json`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.quality.evaluating.judging import is_share
from utvm_deploy.results.pages.chart import CURVE_HEIGHT, CURVE_WIDTH, bar
from utvm_deploy.results.pages.render import number, render


def evaluation_html(result: Mapping[str, Any]) -> str:
    """The whole page."""
    return render("evaluation.html", level=2, **evaluation_values(result))


def evaluation_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """What ``evaluation_body.html`` shows."""
    runs = result["runs"]
    last = runs[-1]
    names = list(dict.fromkeys(name for run in runs for name in run["metrics"]))
    return {
        "found": result,
        "last": last,
        "changes": told_changes(result["changes"]),
        "heads": ["computed by", "runtime", *(f">{name}" for name in names), ">samples/s"],
        "rows": [
            {
                "engine": run["engine"],
                "runtime": run["runtime"],
                "cells": [
                    *(_cell(run["metrics"], name) for name in names),
                    number(run["samples_per_second"], 1),
                ],
            }
            for run in runs
        ],
        "classes": [_class(figures) for figures in last["per_class"] if figures["items"]],
        "matrix": _matrix(last["confusion"]),
        "names": [_name(result, place) for place in range(len(last["confusion"] or ()))],
        "roc": _curve(last["roc"]),
        "roc_width": CURVE_WIDTH,
        "roc_height": CURVE_HEIGHT,
        "is_classes": result["task"] == "classification",
        "class_name": lambda value: "" if value is None else _name(result, int(value)),
    }


def told_changes(changes: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Those worth telling: where two of three runs are equal, the last pair repeats the first."""
    is_equal = any(not change["largest_difference"] for change in changes)
    return changes[:2] if is_equal else changes


def metric_text(name: str, value: float | None) -> str:
    """A metric for people."""
    if value is None:
        return "equal" if name == "sqnr_db" else ""
    if is_share(name):
        return f"{value:.4f}"
    return f"{value:.4g}"


def _cell(metrics: Mapping[str, float | None], name: str) -> str:
    return metric_text(name, metrics[name]) if name in metrics else ""


def _name(result: Mapping[str, Any], place: int) -> str:
    names = result["class_names"]
    return str(names[place]) if names is not None and place < len(names) else str(place)


def _class(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": figures["name"],
        "bars": (bar(100 * (figures["recall"] or 0), 100, "one", "recall in percent"),),
        "cells": [
            number(figures["items"]),
            *(number(figures[key], 3) for key in ("precision", "recall", "f1")),
        ],
    }


def _matrix(confusion: Sequence[Sequence[int]] | None) -> list[list[dict[str, Any]]]:
    """Each cell with its share of the row, which is how dark it is."""
    return [
        [
            {
                "value": value,
                "share": round(value / (sum(row) or 1), 3),
                "kind": "right" if across == down else "wrong",
            }
            for across, value in enumerate(row)
        ]
        for down, row in enumerate(confusion or ())
    ]


def _curve(points: Sequence[Sequence[float]]) -> str:
    """The points of the ROC curve in units of SVG."""
    return " ".join(
        f"{CURVE_WIDTH * across:.1f},{CURVE_HEIGHT * (1 - up):.1f}" for across, up in points
    )
