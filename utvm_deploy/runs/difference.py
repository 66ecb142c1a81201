"""Two results of profile or bench side by side: layers, totals, RAM and flash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import BenchError
from utvm_deploy.comparing.gate import Ours
from utvm_deploy.graph.names import short_name


@dataclass(frozen=True)
class Change:
    """A figure before and now; None where one side lacks it."""

    what: str  # "layer 3 (CONV_2D conv_3)", "whole model", "RAM", "flash"
    unit: str
    before: int | None
    now: int | None

    @property
    def percent(self) -> float | None:
        """By how much it grew; None where that has no meaning."""
        if not self.before or self.now is None:
            return None
        return 100 * (self.now / self.before - 1)


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
    # The layers of now, then those that only were there before.
    keys = dict.fromkeys((*new.layers, *old.layers))
    layers = [
        Change(_label(*key), new.unit, old.layers.get(key), new.layers.get(key)) for key in keys
    ]
    whole = (
        Change("whole model", new.unit, old.total, new.total),
        Change("RAM", "bytes", old.ram_bytes, new.ram_bytes),
        Change("flash", "bytes", old.flash_bytes, new.flash_bytes),
    )
    return Difference(new.name, (old.board, new.board), (*layers, *whole))


def _label(index: int, layer: str) -> str:
    """A layer by its number, operator and output; frameworks make names of hundreds of letters."""
    operator, _, name = layer.partition(" ")
    return f"layer {index} ({operator} {short_name(name)})"
