"""The result of `utvm bench` for ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.planning.decision import model_of
from utvm_deploy.results.comparing.facts import (
    EngineSize,
    LayerComparison,
    ModelComparison,
    NotCompared,
    OtherPlacement,
)
from utvm_deploy.results.profiling.placement import Placement


def bench_summary(
    found: Sequence[ModelComparison], failed: Sequence[NotCompared], board: Board, against: str
) -> dict[str, Any]:
    """Every comparison, and the models that have none."""
    return {
        "board": board.name,
        "core": board.cpu.core,
        "cycle_model": model_of(board) if any(one.is_modelled for one in found) else "",
        "against": against,
        "models": [_model_summary(comparison) for comparison in found],
        "failed": [
            {"name": one.name, "file": one.file, "kind": one.kind, "error": one.reason}
            for one in failed
        ],
    }


def _model_summary(found: ModelComparison) -> dict[str, Any]:
    return {
        "name": found.name,
        "source": found.source,
        "engine": found.engine,
        "build": found.build or None,
        "builds": [
            {
                "label": build.label,
                "built_with": build.built_with,
                "theirs": dict(build.figures),
                "differing_layers": list(build.differing_layers),
            }
            for build in found.builds
        ],
        "is_modelled": found.is_modelled,
        "inputs": found.inputs,
        "figures": found.figures,
        **_ratios(found),
        "end_to_end_ratio": found.end_to_end_ratio(found.figures[0]) if found.figures else None,
        "in_file": _in_file_summary(found),
        "ours": dict(found.ours),
        "theirs": None if found.theirs is None else dict(found.theirs),
        "placement": {
            "ours": _placement_summary(found.our_placement),
            "theirs": _placement_summary(found.their_placement),
        },
        "elsewhere": _elsewhere_summary(found),
        "size": {"ours": _size_summary(found.our_size), "theirs": _size_summary(found.their_size)},
        "layers": [_layer_summary(found, layer) for layer in found.layers],
    }


def _in_file_summary(found: ModelComparison) -> dict[str, Any] | None:
    other = found.in_file
    if other is None:
        return None
    ratios = {name: found.end_to_end_ratio(name) for name in found.figures}
    return {"build": other.label or None, "ratios": ratios, "theirs": dict(other.figures)}


def _elsewhere_summary(found: ModelComparison) -> dict[str, Any] | None:
    other = found.elsewhere
    if other is None:
        return None
    return {
        "region": other.region,
        "build": other.build or None,
        **_ratios(other, found.figures),
        "ours": dict(other.ours),
        "theirs": dict(other.theirs),
    }


def _layer_summary(found: ModelComparison, layer: LayerComparison) -> dict[str, Any]:
    return {
        "index": layer.index,
        "operator": layer.kind,
        "name": layer.name,
        "macs": layer.macs,
        **_ratios(layer, found.figures),
        "ours": dict(layer.ours),
        "theirs": None if layer.theirs is None else dict(layer.theirs),
        "kernel": layer.kernel,
        "their_kernel": layer.their_kernel or None,
        "output_bytes": layer.output_bytes,
        "differing_bytes": layer.differing_bytes,
    }


def _ratios(
    item: ModelComparison | LayerComparison | OtherPlacement, figures: Sequence[str] | None = None
) -> dict[str, float | None]:
    """``ratio`` of the figure to judge by, and ``ratio_NAME`` of each other one."""
    names = item.figures if isinstance(item, ModelComparison) else figures or ()
    ratios = {
        "ratio" if position == 0 else f"ratio_{name}": item.ratio(name)
        for position, name in enumerate(names)
    }
    return {"ratio": None} | ratios


def _placement_summary(placement: Placement | None) -> dict[str, str] | None:
    return None if placement is None else dict(vars(placement))


def _size_summary(size: EngineSize | None) -> dict[str, int] | None:
    return None if size is None else dict(vars(size))
