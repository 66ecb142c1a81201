"""The figures next to their definitions, written out as loops."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from utvm_deploy.quality.evaluating import metrics

RNG = np.random.default_rng(3)


def loop_auc(scores: list[float], positive: list[bool]) -> float:
    """How often a positive is above a negative; a tie counts half."""
    won = [
        (good > bad) + (good == bad) / 2
        for (good, yes), (bad, no) in product(zip(scores, positive, strict=True), repeat=2)
        if yes and not no
    ]
    return sum(won) / len(won)


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auc(levels: int) -> None:
    scores = RNG.integers(0, levels, 60) / levels
    positive = RNG.integers(0, 2, 60) == 1
    expected = loop_auc(scores.tolist(), positive.tolist())
    assert metrics.auc(scores, positive) == pytest.approx(expected, abs=1e-12)
    assert metrics.auc(-scores, positive) == pytest.approx(1 - expected, abs=1e-12)


def test_auc_of_perfect_and_of_equal_scores() -> None:
    positive = np.array([False, False, True, True])
    assert metrics.auc(np.array([0.1, 0.2, 0.3, 0.4]), positive) == 1
    assert metrics.auc(np.array([0.4, 0.3, 0.2, 0.1]), positive) == 0
    assert metrics.auc(np.zeros(4), positive) == 0.5
    false, true = metrics.roc_curve(np.array([0.1, 0.2, 0.3, 0.4]), positive)
    assert false.tolist() == [0, 0, 0, 0.5, 1] and true.tolist() == [0, 0.5, 1, 1, 1]


@pytest.mark.parametrize("levels", [2, 50])
def test_in_top(levels: int) -> None:
    scores = RNG.integers(0, levels, (40, 7)).astype(float)
    labels = RNG.integers(0, 7, 40)
    for k in range(1, 8):
        best = [sorted(range(7), key=lambda c, row=row: (-row[c], c))[:k] for row in scores]
        expected = np.mean([label in some for label, some in zip(labels, best, strict=True)])
        assert metrics.in_top(scores, labels, k) == expected
    assert metrics.in_top(scores, labels, 1) == (scores.argmax(axis=1) == labels).mean()


def test_confusion_matrix() -> None:
    found = metrics.confusion_matrix(np.array([0, 2, 2, 2]), np.array([0, 1, 1, 2]), 3)
    assert found.tolist() == [[1, 0, 0], [0, 0, 0], [0, 2, 1]]


def test_errors_of_a_regression() -> None:
    values, targets = np.array([[1.0], [2.0], [6.0]]), np.array([[1.0], [3.0], [4.0]])
    assert metrics.mean_absolute_error(values, targets) == 1
    assert metrics.root_mean_square_error(values, targets) == pytest.approx(math.sqrt(5 / 3))
    # 1 - (0 + 1 + 4) / (25 / 9 + 1 / 9 + 16 / 9)
    assert metrics.r_squared(values, targets) == pytest.approx(1 - 5 / (42 / 9))
    assert metrics.r_squared(values, np.ones((3, 1))) is None
    # The mean of three times 0.1 is not 0.1.
    assert metrics.r_squared(values, np.full((3, 1), 0.1)) is None
    two = np.hstack([values, targets]), np.hstack([targets, targets])
    assert metrics.r_squared(*two) == pytest.approx(1 - 5 / (42 / 9) / 2)


def test_sqnr() -> None:
    right = np.array([[3.0, 4.0]])
    assert metrics.sqnr_db(right + np.array([0.0, 0.5]), right) == pytest.approx(20)
    assert metrics.sqnr_db(right, right) == math.inf
    assert metrics.sqnr_db(right, 0 * right) == -math.inf
    assert metrics.sqnr_db(right * math.inf, right) == -math.inf
    assert math.isnan(metrics.sqnr_db(right * math.nan, right))
