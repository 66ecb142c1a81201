"""What the page that compares two runs shows."""

from __future__ import annotations

from typing import Any

from utvm_deploy.runs.difference import differences
from utvm_deploy.runs.page import compare_values
from utvm_deploy.runs.run import Run
from utvm_deploy.service.kept_runs import COMPARED, figures, find_run, find_runs
from utvm_deploy.service.parts import Parts

#: Runs that may be chosen.
_MOST_RUNS = 100


def comparison_values(parts: Parts, before: str, now: str) -> dict[str, Any]:
    """What ``compare.html`` shows. ``before`` and ``now`` are keys of runs or of jobs.

    Raises UtvmError if the two cannot be compared.
    """
    choices = [
        run
        for verb in COMPARED
        for run in find_runs(model="", board="", verb=verb, most=_MOST_RUNS)
        if run.is_good
    ]
    values: dict[str, Any] = {
        "choices": sorted(choices, key=lambda run: run.started, reverse=True),
        "before": before,
        "now": now,
        "sides": None,
        "grown": 0,
    }
    if not before or not now:
        return values
    sides = [find_run(parts, key) for key in (before, now)]
    found = differences(*map(figures, sides))
    compared = compare_values(found)
    grown = sum(row["verdict"] == "bad" for model in compared["models"] for row in model["rows"])
    is_modelled = any(map(_is_modelled, sides))
    keys = {"before": sides[0].key, "now": sides[1].key}
    return {
        **values,
        **keys,
        "sides": sides,
        "grown": grown,
        "is_modelled": is_modelled,
        **compared,
    }


def _is_modelled(run: Run) -> bool:
    models = [run.result, *run.result.get("models", ())]
    return any(model.get("is_modelled") for model in models)
