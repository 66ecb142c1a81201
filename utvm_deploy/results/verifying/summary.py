"""A verification as the object that ``utvm verify --json`` prints."""

from __future__ import annotations

from dataclasses import asdict

from utvm_deploy.base.results import picked
from utvm_deploy.graph.float_bounds import Bound
from utvm_deploy.results.verifying.on_board import Verification


def _bound_facts(bound: Bound) -> dict[str, float]:
    return {"ulps": bound.ulps, "relative": bound.relative}


def verification_summary(found: Verification) -> dict[str, object]:
    """Plain values; ``origin`` is added by who compared with the model's own runtime."""
    return {
        **picked(found, "ok", "board", "model", "reference"),
        "samples": found.samples_run,
        "samples_from": found.samples,
        "output_bytes": found.output_bytes,
        "layer_bytes": found.layer_bytes,
        "bound": _bound_facts(found.bound),
        "shadow": None if found.shadow is None else asdict(found.shadow),
        "golden_differs": found.golden_differs,
        "mismatches": [asdict(mismatch) for mismatch in found.mismatches],
        "layers": [
            {
                "index": check.layer.index,
                "operator": check.layer.kind,
                "engine": check.layer.engine,
                "name": check.layer.name,
                "bound": _bound_facts(check.bound),
                "samples": check.samples,
                "mismatch": asdict(check.mismatch) if check.mismatch else None,
            }
            for check in found.layers
        ],
    }
