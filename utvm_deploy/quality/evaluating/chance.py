"""Whether labels probably are wrong: of other inputs, or of classes in another order.

Then a good model is as good as guessing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.quality.evaluating.facts import Judged, Problem

#: A smaller gain of accuracy can be chance.
_CLEAR_GAIN = 0.3


def order_note(problem: Problem, confusion: NDArray[np.int64] | None) -> Iterator[str]:
    """A sentence if nearly all samples of each class are taken for one other class.

    ``confusion`` counts samples by label and prediction, as in ``Judged``.
    """
    if confusion is None or problem.classes < 2 or not confusion.any():
        return
    found = confusion[confusion.sum(axis=1) > 0]
    best = found.argmax(axis=1)
    if len(best) < 2 or len(set(best.tolist())) != len(best):
        return
    as_given = float(np.trace(confusion) / confusion.sum())
    in_order = float(found.max(axis=1).sum() / confusion.sum())
    if in_order - as_given < _CLEAR_GAIN:
        return
    why = (
        "names are sorted, and the first one is class 0; name the classes 0, 1, 2"
        if problem.class_names is not None
        else "give labels"
    )
    yield (
        f"the accuracy would be {in_order:.4f} if the classes were in another order: {why} in the "
        "order of the model's outputs"
    )


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
