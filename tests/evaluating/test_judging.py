"""What an output means, the figures of runs made by hand, and limits on them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from utvm_deploy.base.errors import DataError, UsageError
from utvm_deploy.graph.model import Graph, Quantization, Tensor
from utvm_deploy.quality.datasets import Dataset, ModelInput, dataset_of_arrays
from utvm_deploy.quality.evaluating.chance import chance_note
from utvm_deploy.quality.evaluating.class_order import order_note
from utvm_deploy.quality.evaluating.conversion import InputCount, how_taken, to_input, to_real
from utvm_deploy.quality.evaluating.facts import (
    DEVICE,
    FLOAT,
    REFERENCE,
    Judged,
    Problem,
    Run,
    Settings,
)
from utvm_deploy.quality.evaluating.judging import SMALLER_IS_BETTER, changes, judged, metric_names
from utvm_deploy.quality.evaluating.limits import check_limits, limit_of
from utvm_deploy.quality.evaluating.problem import problem_of

SCALE = Quantization((0.5,), (-3,))


def graph(output: tuple[int, ...], given: tuple[int, ...] = (1, 8)) -> Graph:
    tensors = (Tensor("x", given, "int8", SCALE), Tensor("y", output, "int8", SCALE))
    return Graph("model", tensors, (), (0,), (1,), "")


def dataset(given: tuple[int, ...] = (8,), **answers: Any) -> Dataset:
    count = len(next(iter(answers.values()), range(6)))
    one = ModelInput("x", (1, *given), "int8", SCALE)
    return dataset_of_arrays({"inputs": np.zeros((count, *given), np.int8), **answers}, (one,))


def posed(output: tuple[int, ...], settings: Settings | None = None, **answers: Any) -> Problem:
    return problem_of(graph(output), dataset(**answers), settings or Settings(), None)


def run(engine: str, values: Any) -> Run:
    found = np.array(values, float)
    return Run(engine, "a runtime", "m.tflite", found, len(found), 2.0)


@pytest.mark.parametrize(
    ("output", "answers", "task", "classes"),
    [
        ((1, 3), {"labels": [0, 2, 1]}, "classification", 3),
        ((1, 1, 1, 3), {"labels": [0, 2, 1]}, "classification", 3),
        ((1, 3), {"targets": [0.0, 2.0, 1.0]}, "classification", 3),
        ((1, 1), {"labels": [0, 1, 1]}, "classification", 2),
        ((1, 1), {"labels": [0, 7, 1]}, "regression", 0),
        ((1, 1), {"targets": [0.0, 1.0, 1.0]}, "regression", 0),
        ((1, 2), {"targets": [[0.0, 1.0], [1.0, 1.0]]}, "regression", 0),
        ((1, 8), {"labels": [0, 1, 1]}, "anomaly", 2),
        ((1, 8), {"labels": [0, 7, 1]}, "classification", 8),
    ],
)
def test_the_task_follows_from_data_and_shape(
    output: tuple[int, ...], answers: dict[str, Any], task: str, classes: int
) -> None:
    found = posed(output, **answers)
    assert (found.task, found.classes) == (task, classes)
    assert (found.targets is not None) == (task == "regression")


@pytest.mark.parametrize(
    ("output", "settings", "answers", "said"),
    [
        ((1, 3), Settings(), {"labels": [0, 3, 1]}, "sample 1 has label 3, and output 'y' knows"),
        ((1, 3), Settings(), {}, "have no labels and no targets; add them, or give the float"),
        ((1, 3), Settings(), {"targets": [[0.5, 1]]}, "2 targets for each sample, and output 'y'"),
        ((1, 3), Settings(output=1), {"labels": [0]}, "has no output 1; give one of 0 to 0"),
        ((1, 3), Settings("guess"), {"labels": [0]}, "there is no task 'guess'; give one of"),
        ((1, 3), Settings("anomaly"), {"labels": [0, 1]}, "is not of the size of the input"),
        ((1, 8), Settings(), {"labels": [1, 1]}, "the labels are 1; the figures of anomalies"),
        ((1, 4, 4, 3), Settings(), {"labels": [0]}, "which is not one score for each class"),
        ((1, 3), Settings("classification"), {"targets": [0.5]}, "classification needs labels"),
        ((1, 3), Settings("regression"), {"labels": [0, 1]}, "one label for each sample, and the"),
    ],
)
def test_data_that_do_not_fit_the_output(
    output: tuple[int, ...], settings: Settings, answers: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=re.escape(said)):
        posed(output, settings, **answers)


@pytest.mark.parametrize("names", [["a"] * 6, ["a", "b", "c", "d", "a", "b"]])
def test_names_of_some_classes_only(names: list[str]) -> None:
    found = len(set(names))
    said = f"name {found} classes ({', '.join(sorted(set(names)))}), and output 'y' has 3; give"
    with pytest.raises(DataError, match=re.escape(said)):
        posed((1, 3), labels=names)
    assert posed((1, 3), labels=["b", "a", "c"]).class_names == ("a", "b", "c")
    assert posed((1, 1), labels=["no", "yes", "no"]).classes == 2


def test_names_do_not_say_what_is_an_anomaly() -> None:
    with pytest.raises(DataError, match=r"\(anomaly, normal\), and a name does not say which"):
        posed((1, 8), labels=["normal", "anomaly", "normal"])


def test_labels_of_a_part_of_the_data() -> None:
    data = dataset(labels=[0, 1, 0, 1, 9, 1]).spread(3)
    with pytest.raises(DataError, match="sample 4 has label 9"):
        problem_of(graph((1, 3)), data, Settings(), None)


def test_classification() -> None:
    problem = posed((1, 3), Settings(top_k=2), labels=[0, 1, 2, 2])
    floats = run(FLOAT, np.eye(3)[[0, 1, 2, 2]])
    ours = run(DEVICE, [[9, 0, 0], [1, 2, 5], [0, 8, 8], [0, 1, 5]])
    first, second = judged(problem, [floats, ours])
    assert first.metrics == {"accuracy": 1, "top2": 1, "macro_f1": 1}
    assert second.metrics["accuracy"] == 0.5
    assert second.metrics["top2"] == 1
    assert second.metrics["agreement"] == 0.5
    assert second.confusion is not None
    assert second.confusion.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 1]]
    last = second.per_class[2]
    assert (last.name, last.items, last.precision, last.recall, last.f1) == ("2", 2, 0.5, 0.5, 0.5)
    assert second.metrics["macro_f1"] == 0.5
    assert set(second.metrics) == set(metric_names(problem, has_float=True))
    (change,) = changes(problem, [floats, ours])
    assert change.changed == 2
    assert [(one.position, one.label, one.before, one.after) for one in change.items] == [
        (1, 1, 1, 2),
        (2, 2, 2, 1),
    ]


def test_a_single_score_and_its_threshold() -> None:
    problem = posed((1, 1), Settings(threshold=0.6), labels=[0, 1, 0, 1])
    (found,) = judged(problem, [run(DEVICE, [[0.1], [0.6], [0.59], [0.2]])])
    assert found.metrics["accuracy"] == 0.75
    assert found.metrics["auc"] == 0.75  # of four pairs, 0.2 is not above 0.59
    assert set(found.metrics) == set(metric_names(problem, has_float=False))


def test_two_classes_have_an_auc_unless_one_never_occurs() -> None:
    values = [[0.9, 0.1], [0.2, 0.8]]
    (found,) = judged(posed((1, 2), labels=[0, 1]), [run(DEVICE, values)])
    assert found.metrics["auc"] == 1
    (found,) = judged(posed((1, 2), labels=[1, 1]), [run(DEVICE, values)])
    assert "auc" not in found.metrics


def test_regression_and_what_differs_most() -> None:
    problem = posed((1, 1), targets=[1.0, 3.0, 4.0])
    runs = [run(REFERENCE, [[1], [2], [6]]), run(DEVICE, [[1], [2.25], [5.5]])]
    first, _ = judged(problem, runs)
    assert first.metrics == pytest.approx({"mae": 1, "rmse": (5 / 3) ** 0.5, "r2": 1 - 45 / 42})
    (change,) = changes(problem, runs)
    assert (change.changed, change.largest_difference) == (2, 0.5)
    assert [one.position for one in change.items] == [2, 1]
    assert (change.items[0].label, change.items[0].before, change.items[0].after) == (4, 6, 5.5)


def test_without_answers_a_model_is_compared_with_its_float_one() -> None:
    problem = problem_of(graph((1, 3)), dataset(), Settings(), Path("float.tflite"))
    runs = [
        run(FLOAT, np.eye(3)[[0, 1, 2, 0, 1, 2]]),
        run(REFERENCE, np.eye(3)[[0, 1, 2, 0, 1, 1]]),
    ]
    _, found = judged(problem, runs)
    assert found.metrics["agreement"] == pytest.approx(5 / 6)
    assert set(found.metrics) == set(metric_names(problem, has_float=True))


def test_windows_are_one_recording() -> None:
    data = replace(dataset(labels=[1, 1, 1, 0, 0, 1]), groups=np.array([4, 4, 4, 7, 7, 9]))
    problem = problem_of(graph((1, 8)), data, Settings(), None)
    assert (problem.items, problem.word) == (3, "recordings")
    assert problem.labels is not None and problem.labels.tolist() == [1, 0, 1]
    assert problem.item.tolist() == [0, 0, 0, 1, 1, 2]
    assert problem.positions.tolist() == [4, 7, 9]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, -3), (0.2, -3), (0.25, -2), (-0.25, -4), (0.75, -1), (-0.75, -5), (65.0, 127)],
)
def test_floats_are_quantized_as_by_tflite(value: float, expected: int) -> None:
    one = ModelInput("x", (1, 1), "int8", SCALE)
    found, clipped = to_input(np.array([[value]], np.float32), one)
    assert (found.dtype, found.item(), clipped) == (np.int8, expected, 0)


def test_clipped_values_are_counted() -> None:
    one = ModelInput("x", (1, 4), "int8", SCALE)
    count = InputCount()
    (found,) = count.taken((np.array([[70, -70, 1, 0]], np.float32),), (one,))
    assert found.tolist() == [[127, -128, -1, -3]]
    assert (count.values, count.clipped) == (4, 2)
    assert to_real(found, SCALE).tolist() == [[65, -62.5, 1, 0]]
    assert "quantized to int8 (scale 0.5, zero -3)" in how_taken((np.zeros(1, "f4"),), (one,))
    assert how_taken((np.zeros(1, "i1"),), (one,)) == "int8, as the data have them"


def test_integers_that_have_no_scale() -> None:
    one = ModelInput("x", (1, 4), "int32")
    with pytest.raises(DataError, match="takes int32 without a scale"):
        to_input(np.zeros((1, 4), np.float32), one)


def test_classes_in_another_order_are_told() -> None:
    labels = [0, 0, 1, 1, 2, 2]
    problem = replace(posed((1, 3), labels=labels), class_names=("cat", "dog", "owl"))
    moved = np.array([[0, 2, 0], [0, 0, 2], [2, 0, 0]])
    (told,) = order_note(problem, moved)
    assert "would be 1.0000 if the classes were in another order: names are sorted" in told
    (told,) = order_note(replace(problem, class_names=None), moved)
    assert "another order: give labels in the order of the model's outputs" in told
    for good in (np.diag([2, 2, 2]), np.array([[2, 0, 0], [2, 0, 0], [0, 0, 2]]), None):
        assert not list(order_note(problem, good))


def guesses(classes: int, items: int, *, right: float) -> Judged:
    """A run that is right by chance, and knows the answer to a share of the items."""
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, items)
    predicted = np.where(rng.random(items) < right, labels, rng.integers(0, classes, items))
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    accuracy = {"accuracy": float((labels == predicted).mean())}
    return Judged(None, accuracy, confusion=confusion)  # type: ignore[arg-type]


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_labels_of_other_inputs_are_told(classes: int) -> None:
    problem = posed((1, classes), labels=[0, 1])
    guess = guesses(classes, 400, right=0)
    (told,) = chance_note(problem, [guess, guess])
    assert "is that of guessing; check that the labels are in the order" in told
    # A quantized model that lost everything is no question of labels.
    assert not list(chance_note(problem, [guesses(classes, 400, right=0.8), guess]))
    assert not list(chance_note(problem, [guesses(classes, 400, right=0.3)]))
    assert not list(chance_note(problem, [guesses(classes, 49, right=0)]))


def test_a_model_that_always_says_the_most_frequent_class_is_no_guess() -> None:
    most = Judged(None, {"accuracy": 0.9}, confusion=np.array([[90, 0], [10, 0]]))  # type: ignore[arg-type]
    assert not list(chance_note(posed((1, 2), labels=[0, 1]), [most]))


def test_limits() -> None:
    limit = limit_of("accuracy=0.9", is_least=True)
    assert limit.is_kept({"accuracy": 0.9}) and not limit.is_kept({"accuracy": 0.89})
    assert not limit.is_kept({})
    most = limit_of("rmse=2", is_least=False)
    assert most.is_kept({"rmse": 2.0}) and not most.is_kept({"rmse": 2.1})
    check_limits([limit], ("accuracy",), SMALLER_IS_BETTER)
    with pytest.raises(UsageError, match=r"no such metric for this model .* give one of mae, rmse"):
        check_limits([limit], ("mae", "rmse"), SMALLER_IS_BETTER)
    with pytest.raises(UsageError, match="smaller; give --max rmse=2"):
        check_limits([limit_of("rmse=2", is_least=True)], ("rmse",), SMALLER_IS_BETTER)
    for text in ("accuracy", "accuracy=", "=1", "accuracy=nan", "accuracy=high"):
        with pytest.raises(ValueError):
            limit_of(text, is_least=True)
