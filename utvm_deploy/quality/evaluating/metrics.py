"""The usual figures of classifiers, anomaly scores and regressions, in NumPy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]


def confusion_matrix(labels: Labels, predicted: Labels, classes: int) -> Labels:
    """How often each class (row) was taken for each (column)."""
    found = np.zeros((classes, classes), np.int64)
    np.add.at(found, (labels, predicted), 1)
    return found


def in_top(scores: Numbers, labels: Labels, k: int) -> float:
    """The share of rows where fewer than ``k`` classes are before the right one.

    Of equal scores, the class with the lower number is first, as ``argmax`` has it.
    """
    right = scores[np.arange(len(labels)), labels][:, None]
    is_earlier = np.arange(scores.shape[1])[None, :] < labels[:, None]
    before = (scores > right) | ((scores == right) & is_earlier)
    return float((before.sum(axis=1) < k).mean())


def roc_curve(scores: Numbers, positive: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """False and true positive rates for every threshold, from the highest to the lowest one.

    Both kinds must occur.
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    # Equal scores pass a threshold together.
    ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    true = np.cumsum(positive[order])[ends]
    false = 1 + ends - true
    start = [0.0]
    return (
        np.concatenate([start, false / np.count_nonzero(~positive)]),
        np.concatenate([start, true / np.count_nonzero(positive)]),
    )


def auc(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """The area under the ROC curve: how often a positive has the higher score, ties half."""
    false, true = roc_curve(scores, positive)
    return float((np.diff(false) * (true[1:] + true[:-1]) / 2).sum())


def mean_absolute_error(values: Numbers, targets: Numbers) -> float:
    """Over all elements."""
    return float(np.abs(values - targets).mean())


def root_mean_square_error(values: Numbers, targets: Numbers) -> float:
    """Over all elements."""
    return math.sqrt(float(np.square(values - targets).mean()))


def r_squared(values: Numbers, targets: Numbers) -> float | None:
    """The mean over the columns; None if a column of targets never changes."""
    # The mean of equal numbers may be off by a bit, so their variance need not be 0.
    if (targets == targets[0]).all(axis=0).any():
        return None
    total = np.square(targets - targets.mean(axis=0)).sum(axis=0)
    return float((1 - np.square(values - targets).sum(axis=0) / total).mean())


def sqnr_db(values: Numbers, right: Numbers) -> float:
    """The power of what is right over that of the error, in decibel; infinite without an error."""
    signal, noise = float(np.square(right).sum()), float(np.square(values - right).sum())
    if noise == 0:
        return math.inf
    if math.isnan(signal) or math.isnan(noise):
        return math.nan
    ratio = 0.0 if math.isinf(noise) else signal / noise
    return 10 * math.log10(ratio) if 0 < ratio < math.inf else math.copysign(math.inf, ratio - 1)
