"""What `utvm tune` says: the table of kernels, and what became of models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from utvm_deploy.api.tune_function import TuneResult
from utvm_deploy.base.readable import counted
from utvm_deploy.cli.output import Output
from utvm_deploy.tuning.winners import winner_of

# The longest name in a line of a log, where there is no terminal.
_LONGEST_NAME = 48


def report(result: TuneResult, out: Output) -> None:
    """The table of kernels, and what became of each model."""
    found, path = result.found, result.records
    unit = found.setting.unit
    out.table(columns(f"before, {unit}"), kernel_rows(found))
    for model_run in result.model_runs:
        out.line(_model_line(model_run, unit))
        for one in result.not_taken:
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
    out.found(result.to_dict())


def _model_line(model_run: Any, unit: str) -> str:
    """What a model takes without the records and with them."""
    if model_run.ours is not None:
        ours = f"; by our kernels alone {model_run.ours:,}"
        return f"{_model_line(replace(model_run, ours=None), unit)}{ours}"
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
        f"{gain:.3f} times as fast with {counted(count, 'other kernel')}"
    )


def columns(before: str) -> list[str]:
    """The heads of ``kernel_rows``; ``before`` may name the unit."""
    return [
        "kernel",
        ">layers",
        f">{before}",
        ">best",
        *(">per MAC", ">trials", ">gain", "candidate"),
    ]


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
    counts = Counter(winner_of(state.best[0]) for state in tuning.states if state.best)
    return ", ".join(
        f"{name} in {counted(count, 'kernel')}" for name, count in counts.most_common()
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
