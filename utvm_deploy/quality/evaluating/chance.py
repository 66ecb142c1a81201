"""Whether labels probably do not belong to the inputs: then a good model is as good as guessing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.quality.evaluating.facts import Judged, Problem

#: Fewer samples say little.
_FEWEST_SAMPLES = 50
#: Times the accuracy of a guess among all classes.
_NEAR_CHANCE = 1.5
#: Standard deviations that guessing may be better than its mean.
_SPREAD = 2.0


def chance_note(problem: Problem, figures: Sequence[Judged]) -> Iterator[str]:
    """A sentence if every run is about as good as a guess that ignores the inputs."""
    confusions = [one.confusion for one in figures]
    if not confusions or problem.classes < 2:
        return
    if not all(one is not None and _is_a_guess(one, problem.classes) for one in confusions):
        return
    accuracy = figures[-1].metrics["accuracy"]
    yield (
        f"an accuracy of {accuracy:.4f} is that of guessing; check that the labels are in the "
        "order of the samples, and that the data are scaled as in training"
    )


def _is_a_guess(confusion: NDArray[np.int64], classes: int) -> bool:
    """Whether predictions and labels look independent; ``confusion`` is as in ``Judged``."""
    count = int(confusion.sum())
    if count < _FEWEST_SAMPLES:
        return False
    accuracy = float(np.trace(confusion)) / count
    # What independent answers with these shares of the classes would get right.
    expected = float(confusion.sum(axis=1) @ confusion.sum(axis=0)) / count**2
    most = expected + _SPREAD * math.sqrt(expected * (1 - expected) / count)
    return accuracy <= min(most, _NEAR_CHANCE / classes)
