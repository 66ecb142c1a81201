"""A profile as the object that ``utvm profile --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from utvm_deploy.profiling.bound import Bound
from utvm_deploy.profiling.layer_costs import LayerProfile, Profile

#: Of each layer; None for one that has no bound.
Bounds = Sequence[Bound | None]


def profile_summary(found: Profile, bounds: Bounds | None = None) -> dict[str, Any]:
    """A profile for ``--json`` and for a bundle's report."""
    return {
        "board": found.board,
        "model": found.model,
        "tick_unit": found.tick_unit,
        "ticks_per_second": found.ticks_per_second,
        "is_modelled": found.is_modelled,
        "cycle_model": found.cycle_model,
        "runs": found.runs,
        "ticks": found.ticks,
        "ticks_median": found.ticks_median,
        "seconds": found.seconds,
        "figures": dict(found.figures),
        "macs": found.macs,
        "arena_bytes": found.arena_bytes,
        "weights_bytes": found.weights_bytes,
        "flash_bytes": found.flash_bytes,
        "ram_bytes": found.ram_bytes,
        "placement": dict(vars(found.placement)),
        "layers": [
            {
                **_layer_facts(item),
                "bound": None if bound is None else asdict(bound),
                "strips": item.strips,
                "calls": [_layer_facts(call) for call in item.calls],
            }
            for item, bound in zip(found.layers, bounds or [None] * len(found.layers), strict=True)
        ],
    }


def _layer_facts(item: LayerProfile) -> dict[str, Any]:
    return {
        "index": item.layer.index,
        "operator": item.layer.kind,
        "name": item.layer.name,
        "ticks": item.ticks,
        "ticks_median": item.ticks_median,
        "ticks_per_mac": item.ticks_per_mac,
        "figures": dict(item.figures),
        "macs": item.layer.macs,
        "kernel": item.layer.kernel,
        "engine": item.layer.engine,
        "why": item.layer.why,
        "origin": item.layer.origin,
    }
