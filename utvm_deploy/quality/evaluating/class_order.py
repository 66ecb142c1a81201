"""Whether labels are probably those of other outputs: a model has its classes in an own order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.quality.evaluating.facts import Problem

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
