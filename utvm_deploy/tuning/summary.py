"""A tuning as the object that ``utvm tune --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from utvm_deploy.base.results import picked
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.model_runs import ModelRun, NotFollowed, not_followed
from utvm_deploy.tuning.tuner import Tuning
from utvm_deploy.tuning.winners import winner_of


def tuning_summary(
    found: Tuning, model_runs: Sequence[ModelRun], not_taken: Sequence[NotFollowed], records: Path
) -> dict[str, Any]:
    """Plain values; ``not_taken`` is what ``unfollowed`` gives."""
    return {**_tuning(found), **_model_runs(model_runs, not_taken), "records": records}


def unfollowed(found: Tuning, model_runs: Sequence[ModelRun]) -> list[NotFollowed]:
    """The best candidates of kernels that a whole model does not follow."""
    states = {state.work.kernel.key: state for state in found.states}

    def ticks(key: str, candidate: Candidate) -> int | None:
        measured = states[key].measured.get(candidate)
        return measured.ticks_min if measured is not None and measured.is_ok else None

    best = {key: state.best for key, state in states.items() if state.best is not None}
    return not_followed(model_runs, best, ticks, found.scratch, found.setting.core)


def _model_runs(model_runs: Sequence[ModelRun], not_taken: Sequence[NotFollowed]) -> dict[str, Any]:
    return {
        "models": [
            {
                "model": model_run.name,
                "ticks_before": model_run.before,
                "ticks_after": model_run.after,
                "ticks_ours": model_run.ours,
                "changed": model_run.changed,
                "slower_in_place": {
                    key: {"before": before, "after": after}
                    for key, (before, after) in model_run.slower.items()
                },
                "note": model_run.note,
            }
            for model_run in model_runs
        ],
        "not_followed": [
            {
                "model": one.model,
                "kernel": one.kernel,
                "candidate": one.candidate.to_json(),
                "ticks": one.ticks,
                "taken": one.taken.to_json(),
                "taken_ticks": one.taken_ticks,
                "reason": one.reason,
            }
            for one in not_taken
        ],
    }


def _tuning(tuning: Tuning) -> dict[str, Any]:
    setting = tuning.setting
    return {
        **picked(setting, "core", "compiler", "flags", "unit"),
        "cycle_model": setting.model,
        "trials": tuning.trials,
        "trials_before": tuning.trials_before,
        "failed": tuning.errors,
        "seconds": tuning.seconds,
        "candidates_per_second": tuning.per_second,
        "seconds_lower": tuning.lower_s,
        "seconds_load": tuning.load_s,
        "seconds_run": tuning.run_s,
        "ticks_before": tuning.total(tuned=False),
        "ticks_best": tuning.total(tuned=True),
        "kernels": [
            {
                "kernel": state.work.kernel.key,
                "layers": state.work.layers,
                "macs": state.work.kernel.macs,
                "trials": len(state.measured),
                "candidates": len(state.work.candidates),
                "default_ticks": state.default_ticks,
                "before": state.before.to_json(),
                "before_ticks": state.before_ticks,
                "best_ticks": state.best[1] if state.best else None,
                "best": state.best[0].to_json() if state.best else None,
                "best_family": winner_of(state.best[0]) if state.best else None,
                "gain": state.gain,
            }
            for state in tuning.states
        ],
    }
