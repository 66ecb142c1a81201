"""What an evaluation is asked for, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.results import Result, one_line, picked, plain_object

CLASSIFICATION, ANOMALY, REGRESSION = "classification", "anomaly", "regression"
TASKS = (CLASSIFICATION, ANOMALY, REGRESSION)

#: Who computed the outputs: the float model, the reference kernels, the board. STREAM are the
#: reference kernels with the stream of ``--stream``; the first two take whole windows then.
FLOAT, REFERENCE, STREAM, DEVICE = "float", "reference", "stream", "device"

#: Larger matrices are left out; the classes that were confused are listed anyway.
_MOST_CLASSES = 100
_MOST_CONFUSED = 20

#: What a plain table of values is, one row for each item.
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """How outputs are judged."""

    task: str | None = None  # None: by the data and the shape of the output
    output: int = 0  # which of the model's outputs
    top_k: int = 5
    threshold: float = 0.5  # a single score of at least this is class 1


@dataclass(frozen=True, eq=False)
class Problem:
    """What an output means. An item is a sample, or a recording whose windows are samples.

    ``values`` of a run has a row for each item. A row is the real numbers of the output for
    classification and regression, and the reconstruction error for anomalies.
    """

    task: str
    classes: int  # 0 for regression
    is_binary_score: bool  # one number says which of two classes
    threshold: float
    top_k: int
    labels: NDArray[np.int64] | None  # of each item
    targets: Values | None
    class_names: tuple[str, ...] | None
    item: NDArray[np.int64]  # the item of each sample
    positions: NDArray[np.int64]  # of each item in the data, for people
    word: str  # "samples" or "recordings"

    @property
    def items(self) -> int:
        """How many there are."""
        return len(self.positions)

    @property
    def has_answers(self) -> bool:
        """Whether anybody said what is right."""
        return self.labels is not None or self.targets is not None

    def class_name(self, number: int) -> str:
        """What people call a class."""
        names = self.class_names
        return names[number] if names is not None and number < len(names) else str(number)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The values of one engine for all items."""

    # REFERENCE, STREAM, DEVICE, FLOAT, or the quantized types of the model to compare with.
    engine: str
    runtime: str  # what computed: a library with its version, or a board
    model: str
    values: Values
    samples: int
    seconds: float

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """What ran where, and for how long."""
        return (
            f"{self.model}, {self.engine} ({self.runtime}): {self.samples} samples in "
            f"{self.seconds:.1f} s"
        )

    @property
    def samples_per_second(self) -> float:
        """With everything that a sample costs: files, the start of a child, the link."""
        return self.samples / self.seconds if self.seconds > 0 else float("inf")


@dataclass(frozen=True)
class ClassFigures:
    """One class; a figure without a meaning is None."""

    name: str
    items: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, eq=False)
class Judged:
    """A run and its figures."""

    run: Run
    metrics: Mapping[str, float]
    per_class: tuple[ClassFigures, ...] = ()
    confusion: NDArray[np.int64] | None = None  # [label, prediction]
    roc: tuple[tuple[float, float], ...] = ()  # false and true positive rate


@dataclass(frozen=True)
class Changed:
    """An item that two engines see differently; for classification the classes, else values."""

    position: int
    label: float | None
    before: float
    after: float


@dataclass(frozen=True)
class Change:
    """What differs between two runs."""

    before: str
    after: str
    changed: int  # items of another class; for other tasks items of another value
    largest_difference: float  # of values
    sqnr_db: float  # of the values; infinite if they are equal
    items: tuple[Changed, ...]  # the first ones of another class, or those that differ most


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Result):
    """What ``evaluate`` found."""

    model: str
    board: str | None
    data: str
    problem: Problem
    inputs: str  # how samples became the model's inputs
    clipped: float  # the share of input values outside of what the input's type holds
    judged: tuple[Judged, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def headline(self) -> str:
        """The figures of the last engine: the board, or the reference kernels."""
        last = self.judged[-1]
        figures = ", ".join(f"{name} {value:.4g}" for name, value in last.metrics.items())
        word = self.problem.word
        return f"{self.model}, {self.problem.items} {word}, {last.run.engine}: {figures}"

    @property
    def metrics(self) -> Mapping[str, float]:
        """Name to figure: those of the board, without a board those of the reference kernels."""
        return self.judged[-1].metrics

    def of(self, engine: str) -> Judged:
        """The figures of "float", "reference" or "device"; KeyError if it did not run.

        A quantized model of ``reference=`` is not "float", but "int8" and so on.
        """
        for one in self.judged:
            if one.run.engine == engine:
                return one
        raise KeyError(engine)

    def __str__(self) -> str:
        """A line for each run, with its figures."""
        lines = []
        for one in self.judged:
            figures = ", ".join(f"{name} {value:.4g}" for name, value in one.metrics.items())
            lines.append(f"{one.run.engine} ({one.run.runtime}): {figures}")
        return "\n".join(lines)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each engine, with its metrics; None for one that an engine lacks."""
        names = list(dict.fromkeys(name for one in self.judged for name in one.metrics))
        return [
            {
                **picked(one.run, "engine", "runtime", "model", "samples", "seconds"),
                **{name: one.metrics.get(name) for name in names},
            }
            for one in self.judged
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm eval --json``."""
        return plain_object("utvm.eval/1", self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The same without its schema; numbers that JSON does not have are null."""
        problem = self.problem
        return {
            "model": self.model,
            "board": self.board,
            "data": self.data,
            "task": problem.task,
            "items": problem.items,
            "items_are": problem.word,
            "samples": len(problem.item),
            "classes": problem.classes,
            "class_names": [problem.class_name(number) for number in range(problem.classes)]
            if problem.class_names is not None
            else None,
            "inputs": self.inputs,
            "clipped": self.clipped,
            "metrics": _finite(self.metrics),
            "runs": [_run(one, problem) for one in self.judged],
            "changes": [_change(change) for change in self.changes],
            "notes": list(self.notes),
        }


def _run(one: Judged, problem: Problem) -> dict[str, Any]:
    is_small = one.confusion is not None and len(one.confusion) <= _MOST_CLASSES
    return {
        **picked(one.run, "engine", "runtime", "model", "seconds"),
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
