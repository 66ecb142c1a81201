"""Two results of profile, bench or report side by side: layers, totals, RAM, flash, accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import BenchError
from utvm_deploy.quality.evaluating.judging import SMALLER_IS_BETTER
from utvm_deploy.results.comparing.gate import Ours, layer_text

_Layers = Mapping[tuple[int, str], int]


@dataclass(frozen=True)
class Change:
    """A figure before and now; None where one side lacks it."""

    what: str  # "layer 3 (CONV_2D conv_3)", "whole model", "RAM", "flash", "accuracy (device)"
    unit: str  # "" of metrics
    before: float | None  # an integer, except for metrics
    now: float | None
    smaller_is_better: bool = True

    @property
    def percent(self) -> float | None:
        """By how much it grew; None where that has no meaning."""
        if not self.before or self.now is None:
            return None
        return 100 * (self.now / self.before - 1)

    @property
    def percent_text(self) -> str:
        """The same for people. A change from 0 has no percentage, and none is rounded to 0."""
        if self.before is None or self.now is None:
            return ""
        if self.percent is None:
            return "from 0" if self.now else ""
        is_small = self.now != self.before and abs(self.percent) < 0.05
        return f"{self.percent:+.1g} %" if is_small else f"{self.percent:+.1f} %"


@dataclass(frozen=True)
class Difference:
    """All changes of one model."""

    model: str
    boards: tuple[str, str]  # before and now
    changes: tuple[Change, ...]


def differences(before: Sequence[Ours], now: Sequence[Ours]) -> list[Difference]:
    """The changes of each model that both have; one model on each side may have any name.

    Raises BenchError if there is no such model, or if the two count in other units.
    """
    if len(before) == len(now) == 1:
        pairs = [(before[0], now[0])]
    else:
        earlier = {model.name: model for model in before}
        pairs = [(earlier[model.name], model) for model in now if model.name in earlier]
    if not pairs:
        names = [", ".join(sorted(one.name for one in side)) for side in (before, now)]
        raise BenchError(f"the two have no model in common: {names[0]} before, {names[1]} now")
    return [_difference(old, new) for old, new in pairs]


def _difference(old: Ours, new: Ours) -> Difference:
    if old.unit != new.unit:
        raise BenchError(
            f"{old.name} was counted in {old.unit} before and in {new.unit} now; compare runs on "
            "boards that count in one unit"
        )
    earlier = _renumbered(old.layers, new.layers)
    # The layers of now, then those that only were there before.
    keys = dict.fromkeys((*new.layers, *earlier))
    layers = [
        Change(layer_text(*key), new.unit, earlier.get(key), new.layers.get(key)) for key in keys
    ]
    whole = (
        Change("whole model", new.unit, old.total, new.total),
        Change("RAM", "bytes", old.ram_bytes, new.ram_bytes),
        Change("flash", "bytes", old.flash_bytes, new.flash_bytes),
    )
    metrics = (
        Change(what, "", old.metrics.get(what), new.metrics.get(what), _is_error(what))
        for what in dict.fromkeys((*old.metrics, *new.metrics))
    )
    return Difference(new.name, (old.board, new.board), (*layers, *whole, *metrics))


def _is_error(metric: str) -> bool:
    return metric.partition(" ")[0] in SMALLER_IS_BETTER


def _renumbered(old: _Layers, new: _Layers) -> _Layers:
    """The layers of ``old`` by the numbers that those of the same name have in ``new``.

    Other options may have given another number of layers before the one that is meant.
    """
    numbers: dict[str, list[int]] = {}
    for number, label in new:
        numbers.setdefault(label, []).append(number)
    labels = [label for _, label in old]
    found: dict[tuple[int, str], int] = {}
    for (number, label), ticks in old.items():
        same = numbers.get(label, [])
        is_one = len(same) == 1 and labels.count(label) == 1
        found[same[0] if is_one else number, label] = ticks
    return found
