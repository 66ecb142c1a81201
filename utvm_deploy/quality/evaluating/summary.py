"""An evaluation as the object that ``--json`` prints."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from utvm_deploy.quality.evaluating.facts import Change, Evaluation, Judged, Problem

#: Larger matrices are left out; the classes that were confused are listed anyway.
_MOST_CLASSES = 100
_MOST_CONFUSED = 20


def summary(found: Evaluation) -> dict[str, Any]:
    """Plain values; numbers that JSON does not have are null."""
    problem = found.problem
    return {
        "model": found.model,
        "board": found.board,
        "data": found.data,
        "task": problem.task,
        "items": problem.items,
        "items_are": problem.word,
        "samples": len(problem.item),
        "classes": problem.classes,
        "class_names": [problem.class_name(number) for number in range(problem.classes)]
        if problem.class_names is not None
        else None,
        "inputs": found.inputs,
        "clipped": found.clipped,
        "metrics": _finite(found.metrics),
        "runs": [_run(one, problem) for one in found.judged],
        "changes": [_change(change) for change in found.changes],
        "notes": list(found.notes),
    }


def _run(one: Judged, problem: Problem) -> dict[str, Any]:
    is_small = one.confusion is not None and len(one.confusion) <= _MOST_CLASSES
    return {
        "engine": one.run.engine,
        "runtime": one.run.runtime,
        "model": one.run.model,
        "seconds": one.run.seconds,
        "samples_per_second": _number(one.run.samples_per_second),
        "metrics": _finite(one.metrics),
        "per_class": [asdict(figures) for figures in one.per_class],
        "confusion": one.confusion.tolist() if one.confusion is not None and is_small else None,
        "confused": confused(one, problem),
        "roc": [list(point) for point in one.roc],
    }


def confused(one: Judged, problem: Problem) -> list[dict[str, Any]]:
    """The pairs of classes that were confused most often."""
    if one.confusion is None:
        return []
    wrong = one.confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSED]
    pairs = [divmod(int(place), len(wrong)) for place in order]
    return [
        {
            "label": problem.class_name(label),
            "prediction": problem.class_name(prediction),
            "items": int(wrong[label, prediction]),
        }
        for label, prediction in pairs
        if wrong[label, prediction]
    ]


def _change(change: Change) -> dict[str, Any]:
    return {
        "before": change.before,
        "after": change.after,
        "changed": change.changed,
        "largest_difference": _number(change.largest_difference),
        "sqnr_db": _number(change.sqnr_db),
        "items": [_finite(asdict(item)) for item in change.items],
    }


def _finite(values: Any) -> dict[str, Any]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
