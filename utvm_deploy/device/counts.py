"""What a running board's cycle model counted, under the names that people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.emulator.counters import HEADLINE, Counters, between, read_report, read_snapshots
from utvm_deploy.probe import RunningBoard

#: Named counts of one call, what its ticks are first.
Figures = Mapping[str, int]


def counted_figures(running: RunningBoard, ticks: Sequence[int], unit: str) -> list[Figures]:
    """What was counted in the latest calls that took these ticks, one after the other."""
    assert running.cycle_model is not None
    snapshots = read_snapshots(running.cycle_model.snapshots)
    return [_named(counted, unit) for counted in between(snapshots, ticks)]


def final_report(running: RunningBoard) -> Mapping[str, Any]:
    """The report on all that ran, which the emulator writes when it ends: it is stopped here."""
    assert running.cycle_model is not None
    running.stop()
    return read_report(running.cycle_model.report)


def _named(counted: Counters, unit: str) -> Figures:
    # Cycles with memory are the ticks.
    figures = counted.as_dict()
    return {unit: figures.pop(HEADLINE), **figures}
