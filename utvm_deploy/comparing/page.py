"""A comparison as one HTML page: a table with bars per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.comparing.facts import MEASURED, LayerComparison, ModelComparison, NotCompared
from utvm_deploy.pages.chart import bar
from utvm_deploy.pages.render import render


def comparison_html(
    models: Sequence[ModelComparison], figure: str, failed: Sequence[NotCompared] = ()
) -> str:
    """The whole page; ``figure`` is what bars and ratios show."""
    return render(
        "comparison.html",
        models=models,
        figure=figure,
        failed=failed,
        figure_heads=lambda model: [f">{name}" for name in model.figures],
        rows=lambda model: _rows(model, figure),
    )


def recorded_or_measured(model: Mapping[str, Any]) -> str:
    """A sentence on where CMSIS-NN's figures of a model come from, from ``bench --json``."""
    if model["source"] == MEASURED:
        return f"Measured with ours: {model['engine']}, build {model['build']}."
    return f"Recorded once, for equal layer shapes: {model['engine']}."


def _rows(model: ModelComparison, figure: str) -> list[dict[str, Any]]:
    sides = [f.get(figure, 0) for layer in model.layers for f in (layer.ours, layer.theirs or {})]
    longest = max(sides, default=0)
    return [_row(model, layer, figure, longest) for layer in model.layers]


def _row(
    model: ModelComparison, layer: LayerComparison, figure: str, longest: int
) -> dict[str, Any]:
    theirs = (layer.theirs or {}).get(figure)
    return {
        "layer": layer,
        "theirs": theirs,
        "bars": (
            bar(layer.ours[figure], longest, "one", "ours"),
            bar(theirs, longest, "two", "CMSIS-NN"),
        ),
        "agreement": agreement(layer),
        "function": layer.their_kernel or ("ours" if model.source == MEASURED else ""),
    }


def agreement(layer: LayerComparison) -> str:
    """Whether the outputs are equal, in a phrase."""
    if layer.differing_bytes is None:
        return "not compared"
    if layer.differing_bytes == 0:
        return "equal"
    return f"{layer.differing_bytes} of {layer.output_bytes} bytes differ"
