"""Checks labels and targets, and brings them into one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError

#: No classifier has more; a larger label is a target, or a damaged file.
_MOST_CLASSES = 1_000_000


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known about samples; see ``Dataset``."""

    labels: NDArray[np.int64] | None = None
    targets: NDArray[np.float64] | None = None
    class_names: tuple[str, ...] | None = None


def labels_of(values: NDArray[Any], count: int, what: str) -> Answers:
    """A class for each sample: numbers (also as text), names, or rows with a single 1."""
    values = _as_text(_counted(values, count, what))
    if values.dtype.kind in "US" and values.size == count:
        texts = values.reshape(count)
        if texts.dtype.kind == "S":
            texts = np.char.decode(texts, "utf-8", "backslashreplace")
        if all(text.isascii() and text.isdigit() and len(text) < 10 for text in texts):
            # Sorted as names, "10" would come before "2" and get its class.
            return labels_of(texts.astype(np.int64), count, what)
        names, numbers = np.unique(texts, return_inverse=True)
        return Answers(numbers.reshape(count).astype(np.int64), None, tuple(map(str, names)))
    if values.dtype.kind not in "biuf":
        raise DataError(f"{what} is {values.dtype}; give integers, or names")
    if values.size > count:
        values = values.reshape(count, -1)
        if not (((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all()):
            raise DataError(
                f"{what} has shape {values.shape}; give one class for each sample, or rows with a "
                "single 1"
            )
        return Answers(values.argmax(axis=1).astype(np.int64))
    flat = values.reshape(count)
    if not (np.isfinite(flat).all() and (flat == np.floor(flat)).all()):
        raise DataError(
            f"{what} holds numbers that are not integers; for regression, name them 'targets'"
        )
    for wrong in flat[(flat < 0) | (flat >= _MOST_CLASSES)][:1]:
        raise DataError(f"{what} holds {wrong}; classes are counted from 0")
    return Answers(flat.astype(np.int64))


def _as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Names that pandas or NumPy holds as objects, as plain text; other values as they are."""
    if values.dtype.kind == "T" or (
        values.dtype.kind == "O" and all(isinstance(one, str) for one in values.flat)
    ):
        return np.array([str(one) for one in values.flat]).reshape(values.shape)
    return values


def targets_of(values: NDArray[Any], count: int, what: str) -> Answers:
    """The numbers that the model should give, of any shape for each sample."""
    values = _counted(values, count, what)
    if values.dtype.kind not in "biuf":
        raise DataError(f"{what} is {values.dtype}; give numbers")
    found = values.astype(np.float64)
    if not np.isfinite(found).all():
        place = int(np.argwhere(~np.isfinite(found))[0][0])
        raise DataError(f"{what} holds {found[place]} for sample {place}; give finite numbers")
    return Answers(None, found)


def answers_of(values: NDArray[Any], count: int, what: str) -> Answers:
    """Labels if they are integers or names, else targets."""
    is_float = values.dtype.kind == "f" and not (values.ndim == 2 and values.shape[1] > 1)
    return targets_of(values, count, what) if is_float else labels_of(values, count, what)


def _counted(values: NDArray[Any], count: int, what: str) -> NDArray[Any]:
    if values.ndim == 0 or len(values) != count:
        held = "one value" if values.ndim == 0 else f"{len(values):,}"
        raise DataError(f"{what} has {held} for {count:,} samples; give one for each sample")
    return values.reshape(count) if values.size == count else values
