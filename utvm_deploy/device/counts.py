"""What a running board's cycle model counted, under the names that people see."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.targets.emulator.counters import HEADLINE, Counters

#: Named counts of one call; the count that its ticks are is the first.
Figures = Mapping[str, int]


def named_figures(counted: Counters, unit: str) -> Figures:
    """The counts of one call, whose ticks have that unit."""
    # Cycles with memory are the ticks.
    figures = counted.as_dict()
    return {unit: figures.pop(HEADLINE), **figures}
