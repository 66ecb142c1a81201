"""What the page that compares two runs shows."""

from __future__ import annotations

from typing import Any

from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.comparing.gate import ours_of
from utvm_deploy.runs.difference import differences
from utvm_deploy.runs.page import compare_values
from utvm_deploy.runs.run import Run
from utvm_deploy.runs.store import RunStore
from utvm_deploy.service.parts import Parts
from utvm_deploy.service.web_jobs import COMPARED

_SCHEMAS = {"profile": "utvm.profile/1", "bench": "utvm.bench/1"}
#: Runs that may be chosen.
_MOST_RUNS = 100


def comparison_values(parts: Parts, before: str, now: str) -> dict[str, Any]:
    """What ``compare.html`` shows. ``before`` and ``now`` are keys of runs or of jobs.

    Raises UtvmError if the two cannot be compared.
    """
    with RunStore(runs_file()) as store:
        values: dict[str, Any] = {
            "choices": [
                run
                for verb in COMPARED
                for run in store.find(verb=verb, most=_MOST_RUNS)
                if run.is_good
            ],
            "before": before,
            "now": now,
            "sides": None,
            "grown": 0,
            "models": [],
        }
        values["choices"].sort(key=lambda run: run.started, reverse=True)
        if not before or not now:
            return values
        sides = [_run(parts, store, key) for key in (before, now)]
    found = differences(*(ours_of(run.result, _SCHEMAS[run.verb]) for run in sides))
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


def _run(parts: Parts, store: RunStore, key: str) -> Run:
    job = parts.database.job(key)
    if job is not None and not job.run:
        raise UsageError(f"job {key} has no run to compare")
    run = store.get(key if job is None else job.run)
    if run.verb not in COMPARED:
        raise UtvmError(
            f"run {run.key} is of {run.verb}, which has no figures to compare; choose runs of "
            f"{' or '.join(COMPARED)}"
        )
    return run
