"""What a model's output means, by the data and the output's shape, and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError
from utvm_deploy.graph.model import Graph, Tensor
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.datasets import Dataset
from utvm_deploy.quality.evaluating.facts import (
    ANOMALY,
    CLASSIFICATION,
    REGRESSION,
    TASKS,
    Problem,
    Settings,
    Values,
)

#: Names of classes that a message lists.
_MOST_NAMED = 4


def problem_of(graph: Graph, data: Dataset, settings: Settings, reference: Path | None) -> Problem:
    """The problem that the data and the model pose; DataError if they do not fit each other."""
    if not 0 <= settings.output < len(graph.outputs):
        raise DataError(
            f"the model has no output {settings.output}; give one of 0 to {len(graph.outputs) - 1}"
        )
    if settings.task is not None and settings.task not in TASKS:
        raise DataError(f"there is no task {settings.task!r}; give one of {', '.join(TASKS)}")
    output = graph.tensors[graph.outputs[settings.output]]
    inputs = [graph.tensors[number] for number in graph.inputs]
    data = _with_labels(data, output)
    if data.labels is None and data.targets is None and reference is None:
        raise DataError(
            f"the data {data.origin} have no labels and no targets; add them, or give the float "
            "model to compare with (--reference)"
        )
    task = settings.task or _task(data, inputs, output)
    check = {CLASSIFICATION: _classes, ANOMALY: _anomaly, REGRESSION: _regression}[task]
    check(data, inputs, output)
    item, firsts = _items(data)
    elements = math.prod(output.shape)
    is_score = task == CLASSIFICATION and elements == 1
    labels = None if data.labels is None else data.labels[firsts]
    targets = _targets(data, task, elements)
    return Problem(
        task=task,
        classes={CLASSIFICATION: max(elements, 2), ANOMALY: 2, REGRESSION: 0}[task],
        is_binary_score=is_score,
        threshold=settings.threshold,
        top_k=settings.top_k,
        labels=None if task == REGRESSION else labels,
        targets=None if targets is None else targets[firsts],
        class_names=data.class_names,
        item=item,
        positions=_positions(data, firsts),
        word="samples" if data.groups is None else "recordings",
    )


def _with_labels(data: Dataset, output: Tensor) -> Dataset:
    """Targets that are integers are labels if the output has a score for each of several classes.

    Tables often have classes as 0.0 and 1.0.
    """
    targets = data.targets
    if data.labels is not None or targets is None or targets.ndim > 1:
        return data
    is_class = ((targets >= 0) & (targets == np.floor(targets))).all()
    if math.prod(output.shape) < 2 or not is_class:
        return data
    return replace(data, labels=targets.astype(np.int64), targets=None)


def _task(data: Dataset, inputs: list[Tensor], output: Tensor) -> str:
    if data.labels is None and data.targets is not None:
        return REGRESSION
    elements = math.prod(output.shape)
    is_two = data.labels is None or data.labels.max(initial=0) <= 1
    if elements > 2 and is_two and [math.prod(one.shape) for one in inputs] == [elements]:
        return ANOMALY
    if data.labels is None:
        return CLASSIFICATION if elements > 1 else REGRESSION
    return CLASSIFICATION if elements > 1 or is_two else REGRESSION


def _classes(data: Dataset, _inputs: list[Tensor], output: Tensor) -> None:
    elements = math.prod(output.shape)
    name = short_name(output.name)
    if sum(extent > 1 for extent in output.shape) > 1:
        raise DataError(
            f"output {name!r} has shape {output.shape}, which is not one score for each class; "
            "choose another output (--output), or another task (--task)"
        )
    if data.labels is None:
        if data.targets is not None:
            raise DataError("classification needs labels, and the data have targets; rename them")
        return
    classes = max(elements, 2)
    names = data.class_names
    if names is not None and len(names) != classes:
        # A name's class is its place among all names, so one that is missing moves the others.
        raise DataError(
            f"the data {data.origin} name {len(names)} classes ({_listed(names)}), and output "
            f"{name!r} has {classes}; give samples of every class, or numbers instead of names"
        )
    wrong = np.flatnonzero(data.labels >= classes)
    if len(wrong):
        place = int(wrong[0])
        raise DataError(
            f"sample {_position(data, place)} has label {data.labels[place]}, and output "
            f"{name!r} knows classes 0 to {classes - 1}; give the labels of this model"
        )


def _anomaly(data: Dataset, inputs: list[Tensor], output: Tensor) -> None:
    if [math.prod(one.shape) for one in inputs] != [math.prod(output.shape)]:
        raise DataError(
            "an anomaly is what the model cannot reconstruct, and output "
            f"{short_name(output.name)!r} is not of the size of the input; choose "
            "another task (--task)"
        )
    if data.labels is None:
        if data.targets is not None:
            raise DataError("anomalies need labels, 0 or 1, and the data have targets; rename them")
        return
    if data.class_names is not None:
        raise DataError(
            f"the data {data.origin} name the classes ({_listed(data.class_names)}), and a name "
            "does not say which one is the anomaly; give 0 for normal samples and 1 for anomalies"
        )
    found = set(np.unique(data.labels).tolist())
    if found != {0, 1}:
        held = ", ".join(map(str, sorted(found)[:5]))
        raise DataError(
            f"the labels are {held}; the figures of anomalies need both normal samples (0) and "
            "anomalies (1)"
        )


def _regression(data: Dataset, _inputs: list[Tensor], output: Tensor) -> None:
    if data.targets is None:
        return
    elements = math.prod(output.shape)
    each = data.targets[0].size
    if each != elements:
        raise DataError(
            f"there are {each} targets for each sample, and output {short_name(output.name)!r} has "
            f"{elements} elements; give as many"
        )


def _targets(data: Dataset, task: str, elements: int) -> Values | None:
    if task != REGRESSION:
        return None
    if data.targets is not None:
        return data.targets.reshape(len(data), elements)
    if data.labels is None:
        return None
    if elements != 1:
        raise DataError(
            f"there is one label for each sample, and the output has {elements} elements; "
            "give as many targets"
        )
    return data.labels.astype(np.float64)[:, None]


def _listed(names: Sequence[str]) -> str:
    told = ", ".join(short_name(name) for name in names[:_MOST_NAMED])
    return f"{told} ..." if len(names) > _MOST_NAMED else told


def _items(data: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The item of each sample, counted from 0, and the first sample of each item."""
    if data.groups is None:
        every = np.arange(len(data))
        return every, every
    _, firsts, item = np.unique(data.groups, return_index=True, return_inverse=True)
    return item.reshape(len(data)), firsts


def _positions(data: Dataset, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    if data.groups is not None:
        return data.groups[firsts]
    return np.arange(len(data)) if data.positions is None else data.positions


def _position(data: Dataset, place: int) -> int:
    return place if data.positions is None else int(data.positions[place])
