"""Chooses among ways to quantize a model by samples that none of them was made with."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from utvm_deploy.quality.quantizing.child_steps import RecipeResult
from utvm_deploy.quality.quantizing.facts import Calibration
from utvm_deploy.quality.quantizing.sqnr import output_errors

#: A smaller gain on the compared samples may be a loss on others.
CLEARLY_BETTER_DB = 0.5

Way = TypeVar("Way", bound=Hashable)


@dataclass(frozen=True)
class Score:
    """The SQNR of the worst output, in dB: of all compared samples, and of each half of them.

    It is None if all outputs are equal or constant.
    """

    db: float | None
    halves: tuple[float | None, ...] = ()

    @property
    def size(self) -> float:
        """The SQNR; infinite if it is None."""
        return _size(self.db)

    def is_clearly_better(self, other: Score) -> bool:
        """Whether the gain is clear, and no half of the samples loses."""
        halves = zip(self.halves, other.halves, strict=True)
        return self.size > other.size + CLEARLY_BETTER_DB and all(
            _size(one) >= _size(another) for one, another in halves
        )


def score(calibration: Calibration, result: RecipeResult) -> Score:
    """The score of a quantized model."""
    count = len(calibration.outputs[0])
    middle = count // 2
    parts = [slice(count), slice(middle), slice(middle, count)] if middle else [slice(count)]
    every, *halves = (_worst_db(calibration, result, part) for part in parts)
    return Score(every, tuple(halves))


def _worst_db(calibration: Calibration, result: RecipeResult, part: slice) -> float | None:
    real, made = (
        [one[part] for one in outputs] for outputs in (calibration.outputs, result.outputs)
    )
    errors = output_errors(calibration.output_names, real, made)
    known = [one.sqnr_db for one in errors if one.sqnr_db is not None]
    return min(known) if known else None


def clearly_better(scores: Mapping[Way, Score], usual: Way) -> list[Way]:
    """The ways with a clearly better score than the usual one."""
    return [way for way, one in scores.items() if one.is_clearly_better(scores[usual])]


def _size(db: float | None) -> float:
    return math.inf if db is None else db
