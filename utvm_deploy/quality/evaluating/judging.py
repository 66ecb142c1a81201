"""The figures of runs, and what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.quality.evaluating import facts, metrics

#: Of items whose values differ, those that are listed.
_MOST_LISTED = 20
_MOST_ROC_POINTS = 200

#: Metrics that are better when they are smaller.
SMALLER_IS_BETTER = frozenset({"mae", "rmse"})

_SHARES = frozenset({"accuracy", "macro_f1", "agreement", "auc"})


def is_share(name: str) -> bool:
    """Whether a metric is from 0 to 1."""
    return name in _SHARES or name.startswith("top")


def metric_names(problem: facts.Problem, has_float: bool) -> tuple[str, ...]:
    """The metrics that a run will have; R2 may be missing where targets never change."""
    names: list[str] = []
    if problem.has_answers:
        names += {
            facts.CLASSIFICATION: [
                "accuracy",
                *_top_name(problem),
                "macro_f1",
                *_auc_name(problem),
            ],
            facts.ANOMALY: ["auc"],
            facts.REGRESSION: ["mae", "rmse", "r2"],
        }[problem.task]
    if has_float:
        names += ["agreement"] if problem.task == facts.CLASSIFICATION else []
        names += ["sqnr_db"]
    return tuple(names)


def _top_name(problem: facts.Problem) -> list[str]:
    return [f"top{problem.top_k}"] if 1 < problem.top_k < problem.classes else []


def _auc_name(problem: facts.Problem) -> list[str]:
    labels = problem.labels
    has_both = labels is not None and 0 < int(labels.sum()) < len(labels)
    return ["auc"] if problem.classes == 2 and has_both else []


def judged(problem: facts.Problem, runs: Sequence[facts.Run]) -> tuple[facts.Judged, ...]:
    """Each run with its figures."""
    ours = (facts.REFERENCE, facts.STREAM, facts.DEVICE)
    floats = next((run for run in runs if run.engine not in ours), None)
    return tuple(_judged(problem, run, floats) for run in runs)


def _judged(problem: facts.Problem, run: facts.Run, floats: facts.Run | None) -> facts.Judged:
    if problem.task == facts.CLASSIFICATION:
        found = _classified(problem, run)
    elif problem.task == facts.ANOMALY:
        found = _scored(problem, run)
    else:
        found = _regressed(problem, run)
    figures = dict(found.metrics)
    if floats is not None and run is not floats:
        if problem.task == facts.CLASSIFICATION:
            same = predictions(problem, run.values) == predictions(problem, floats.values)
            figures["agreement"] = float(same.mean())
        figures["sqnr_db"] = metrics.sqnr_db(run.values, floats.values)
    return facts.Judged(run, figures, found.per_class, found.confusion, found.roc)


def predictions(problem: facts.Problem, values: facts.Values) -> NDArray[np.int64]:
    """The class of each item."""
    if problem.is_binary_score:
        return (values[:, 0] >= problem.threshold).astype(np.int64)
    best: NDArray[np.int64] = values.argmax(axis=1)
    return best


def _classified(problem: facts.Problem, run: facts.Run) -> facts.Judged:
    labels = problem.labels
    if labels is None:
        return facts.Judged(run, {})
    predicted = predictions(problem, run.values)
    confusion = metrics.confusion_matrix(labels, predicted, problem.classes)
    per_class = tuple(
        _class_figures(problem.class_name(number), confusion, number)
        for number in range(problem.classes)
    )
    # A class that neither occurs nor is ever predicted says nothing.
    f1 = [one.f1 for one in per_class if one.f1 is not None]
    figures = {"accuracy": float((predicted == labels).mean())}
    for name in _top_name(problem):
        figures[name] = metrics.in_top(run.values, labels, problem.top_k)
    figures["macro_f1"] = float(np.mean(f1))
    if not _auc_name(problem):
        return facts.Judged(run, figures, per_class, confusion)
    scores = run.values[:, 0] if problem.is_binary_score else run.values[:, 1] - run.values[:, 0]
    figures["auc"] = metrics.auc(scores, labels == 1)
    return facts.Judged(run, figures, per_class, confusion, _roc(scores, labels))


def _class_figures(name: str, confusion: NDArray[np.int64], number: int) -> facts.ClassFigures:
    right = int(confusion[number, number])
    items, predicted = int(confusion[number].sum()), int(confusion[:, number].sum())
    return facts.ClassFigures(
        name,
        items,
        right / predicted if predicted else None,
        right / items if items else None,
        2 * right / (items + predicted) if items + predicted else None,
    )


def _scored(problem: facts.Problem, run: facts.Run) -> facts.Judged:
    if problem.labels is None:
        return facts.Judged(run, {})
    scores = run.values[:, 0]
    figures = {"auc": metrics.auc(scores, problem.labels == 1)}
    return facts.Judged(run, figures, roc=_roc(scores, problem.labels))


def _roc(scores: facts.Values, labels: NDArray[np.int64]) -> tuple[tuple[float, float], ...]:
    false, true = metrics.roc_curve(scores, labels == 1)
    kept = np.unique(np.linspace(0, len(false) - 1, _MOST_ROC_POINTS).astype(int))
    return tuple(zip(false[kept].tolist(), true[kept].tolist(), strict=True))


def _regressed(problem: facts.Problem, run: facts.Run) -> facts.Judged:
    targets = problem.targets
    if targets is None:
        return facts.Judged(run, {})
    figures = {
        "mae": metrics.mean_absolute_error(run.values, targets),
        "rmse": metrics.root_mean_square_error(run.values, targets),
    }
    r2 = metrics.r_squared(run.values, targets)
    if r2 is not None:
        figures["r2"] = r2
    return facts.Judged(run, figures)


def changes(problem: facts.Problem, runs: Sequence[facts.Run]) -> tuple[facts.Change, ...]:
    """What differs between each run and the next, and between the first and the last."""
    pairs = list(pairwise(runs))
    if len(runs) > 2:
        pairs.append((runs[0], runs[-1]))
    return tuple(_change(problem, before, after) for before, after in pairs)


def _change(problem: facts.Problem, before: facts.Run, after: facts.Run) -> facts.Change:
    gaps = np.abs(after.values - before.values).max(axis=1)
    if problem.task == facts.CLASSIFICATION:
        old, new = (predictions(problem, run.values) for run in (before, after))
        places = np.flatnonzero(old != new)
        changed, listed = len(places), places
        shown = [(float(old[place]), float(new[place])) for place in listed]
    else:
        changed = int(np.count_nonzero(gaps))
        listed = np.argsort(-gaps, kind="stable")[: min(changed, _MOST_LISTED)]
        shown = [_most_different(before.values[place], after.values[place]) for place in listed]
    answers = _answers(problem)
    return facts.Change(
        before.engine,
        after.engine,
        changed,
        float(gaps.max()),
        metrics.sqnr_db(after.values, before.values),
        tuple(
            facts.Changed(
                int(problem.positions[place]),
                None if answers is None else float(answers[place]),
                *values,
            )
            for place, values in zip(listed, shown, strict=True)
        ),
    )


def _answers(problem: facts.Problem) -> NDArray[np.generic] | None:
    """One number for each item, if the data say one."""
    if problem.labels is not None:
        return problem.labels
    targets = problem.targets
    return targets[:, 0] if targets is not None and targets.shape[1] == 1 else None


def _most_different(before: facts.Values, after: facts.Values) -> tuple[float, float]:
    place = int(np.abs(after - before).argmax())
    return float(before[place]), float(after[place])
