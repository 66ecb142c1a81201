"""What `utvm tune` says: the table of kernels, what became of models, and the JSON of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from utvm_deploy.cli.output import Output
from utvm_deploy.records.candidate import Candidate

# The longest name in a line of a log, where there is no terminal.
_LONGEST_NAME = 48


def report(found: Any, model_runs: Sequence[Any], path: Path, out: Output) -> None:
    """The table of kernels, and what became of each model."""
    unit = found.setting.unit
    columns = ["kernel", ">layers", f">before, {unit}", ">best", ">per MAC", ">trials", ">gain"]
    out.table([*columns, "candidate"], kernel_rows(found))
    unfollowed = _not_followed(found, model_runs)
    for model_run in model_runs:
        out.line(_model_line(model_run, unit))
        for one in unfollowed:
            if one.model == model_run.name:
                out.line(
                    f"    not followed in {_short(one.kernel)}: {one.candidate.label} "
                    f"({one.ticks:,} alone, {one.taken_ticks:,} by {one.taken.label}): {one.reason}"
                )
    if won := _winners(found):
        out.line(f"fastest alone: {won}")
    new = found.trials - found.trials_before
    out.line(
        f"{new} trials in {found.seconds:.1f} s ({found.per_second:.1f} a second), "
        f"{found.trials} in all, {found.errors} of them failed{_why(found)}; "
        f"records: {path}"
    )
    out.result(
        "utvm.tune/2", {**_json(found), **_json_model_runs(model_runs, unfollowed), "records": path}
    )


def _model_line(model_run: Any, unit: str) -> str:
    """What a model takes without the records and with them."""
    if model_run.note:
        return f"{model_run.name}: not measured as a whole: {model_run.note}"
    if model_run.before is None:
        return f"{model_run.name}: compiled as without the records; nothing faster was found"
    if model_run.after == model_run.before:
        kept = "compiled as without the records, which nothing beat as a whole"
        return f"{model_run.name}: {model_run.before:,} {unit}; {kept}"
    gain = model_run.before / max(model_run.after, 1)
    count = len(model_run.changed)
    return (
        f"{model_run.name}: {model_run.before:,} -> {model_run.after:,} {unit} as a whole, "
        f"{gain:.3f} times as fast with {count} other kernel{'s' if count > 1 else ''}"
    )


def _not_followed(found: Any, model_runs: Sequence[Any]) -> list[Any]:
    from utvm_deploy.tuning.model_runs import not_followed

    states = {state.work.kernel.key: state for state in found.states}

    def ticks(key: str, candidate: Candidate) -> int | None:
        measured = states[key].measured.get(candidate)
        return measured.ticks_min if measured is not None and measured.is_ok else None

    best = {key: state.best for key, state in states.items() if state.best is not None}
    return not_followed(model_runs, best, ticks, found.scratch, found.setting.core)


def kernel_rows(tuning: Any) -> list[list[object]]:
    """A row for each kernel."""
    rows: list[list[object]] = []
    for state in tuning.states:
        work, best = state.work, state.best
        ticks = best[1] if best else None
        per_mac = ticks / work.kernel.macs if ticks is not None and work.kernel.macs else None
        rows.append(
            [
                _short(work.kernel.name),
                work.layers,
                state.before_ticks,
                ticks,
                per_mac,
                f"{len(state.measured)}/{len(work.candidates)}{'+' if work.free else ''}",
                f"{state.gain:.2f}x",
                best[0].label if best else "",
            ]
        )
    return rows


def _winners(tuning: Any) -> str:
    """For how many kernels each family, or search by TVM's rules, has the best candidate."""
    from utvm_deploy.tuning.winners import winner_of

    counts = Counter(winner_of(state.best[0]) for state in tuning.states if state.best)
    return ", ".join(
        f"{name} in {count} kernel{'s' if count > 1 else ''}"
        for name, count in counts.most_common()
    )


def _why(tuning: Any) -> str:
    """How often each error came, in brackets; nothing if none did."""
    measured = [m for state in tuning.states for m in state.measured.values()]
    counts = Counter(m.error for m in measured if not m.is_ok)
    return f" ({', '.join(f'{n} {error}' for error, n in counts.items())})" if counts else ""


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def caption(tuning: Any) -> str:
    """How far the tuning is, in a line."""
    left = "" if tuning.seconds_left is None else f", {tuning.seconds_left:.0f} s left"
    before, after = tuning.total(tuned=False), tuning.total(tuned=True)
    gain = f", kernels alone {before / after:.2f} times as fast" if before and after else ""
    return f"tuning: {tuning.trials} of {tuning.trials_wanted} trials{gain}{left}"


def _json_model_runs(model_runs: Sequence[Any], unfollowed: Sequence[Any]) -> dict[str, Any]:
    return {
        "models": [
            {
                "model": model_run.name,
                "ticks_before": model_run.before,
                "ticks_after": model_run.after,
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
            for one in unfollowed
        ],
    }


def _json(tuning: Any) -> dict[str, Any]:
    from utvm_deploy.tuning.winners import winner_of

    setting = tuning.setting
    return {
        "core": setting.core,
        "compiler": setting.compiler,
        "flags": setting.flags,
        "unit": setting.unit,
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
