"""Predicts how fast schedules are, by a Gaussian process over those that were measured.

A schedule is described by the number of its sketch and by its decisions, as a text such as
``1.4.2/1.1.8/2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from utvm_deploy.kernels.portable.schedules.template_free import described

#: Number of the sketch, and the decisions.
Key: TypeAlias = tuple[int, str]

#: With fewer measurements, scores are random.
FEWEST_KNOWN = 6
#: The process uses this number of measurements, the fastest first.
MOST_KNOWN = 200
#: What the process does not explain of ticks, as a share of their variance.
_NOISE = 0.02


def scores(known: Mapping[Key, float], asked: Sequence[Key], random: np.random.Generator) -> Any:
    """A score above 0 for each of ``asked``; larger is faster. ``known`` has ticks."""
    if len(known) < FEWEST_KNOWN:
        return random.random(len(asked))
    fastest = sorted(known.items(), key=lambda one: one[1])[:MOST_KNOWN]
    sketches = 1 + max(number for (number, _), _ in fastest)
    keys = [key for key, _ in fastest] + list(asked)
    place = _features(keys, sketches)
    measured, new = place[: len(fastest)], place[len(fastest) :]
    logs = np.log([max(ticks, 1e-12) for _, ticks in fastest])
    mean, spread = logs.mean(), max(float(logs.std()), 1e-6)
    width = float(np.median(_distances(measured, measured))) or 1.0
    covariance = np.exp(-_distances(measured, measured) / width) + _NOISE * np.eye(len(fastest))
    weights = np.linalg.solve(covariance, (logs - mean) / spread)
    expected = np.exp(-_distances(new, measured) / width) @ weights
    return np.exp(-expected)


def _features(keys: Sequence[Key], sketches: int) -> Any:
    """A row for each: its sketch, and the logarithms of its tiles."""
    rows = []
    for number, decisions in keys:
        row = [2.0 * (number == other) for other in range(sketches)]
        for part in decisions.split("/") if decisions else ():
            row += [float(np.log2(int(value) + 3)) for value in part.split(".")]
        rows.append(row)
    longest = max(map(len, rows))
    return np.array([row + [0.0] * (longest - len(row)) for row in rows])


def _distances(one: Any, other: Any) -> Any:
    return np.square(one[:, None] - other[None]).sum(axis=2)


@derived_object
class SpeedModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """The cost model for TVM's own searches, of any number of PrimFuncs. It needs no library."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)
        # By task: the sketches in the order in which they came, and seconds by schedule.
        self.sketches: dict[str, dict[str, int]] = {}
        self.known: dict[str, dict[Key, float]] = {}

    def load(self, path: str) -> None:
        """Nothing: the database has what is known."""

    def save(self, path: str) -> None:
        """Nothing."""

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements; those that failed are left out."""
        known = self.known.setdefault(str(context.task_name), {})
        for one, result in zip(candidates, results, strict=True):
            seconds = [float(value) for value in result.run_secs or ()]
            if seconds:
                known[self.key(context, one)] = min(seconds)

    def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
        """A score for each."""
        known = self.known.get(str(context.task_name), {})
        return scores(known, [self.key(context, one) for one in candidates], self.random)

    def key(self, context: Any, candidate: Any) -> Key:
        """The number of a candidate's sketch, and its decisions."""
        instructions, decisions = described(candidate.sch.trace)
        sketches = self.sketches.setdefault(str(context.task_name), {})
        return sketches.setdefault(instructions, len(sketches)), decisions
