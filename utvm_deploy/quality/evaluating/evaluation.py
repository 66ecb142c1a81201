"""An evaluation from its data to its figures; the caller compiles and loads the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.errors import DataError, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.device import DeviceModel
from utvm_deploy.frontend.files.given_shapes import chosen_now, given
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.datasets import Dataset, ModelInput, dataset_of_arrays, load_dataset
from utvm_deploy.quality.evaluating import facts
from utvm_deploy.quality.evaluating.chance import chance_note
from utvm_deploy.quality.evaluating.class_order import order_note
from utvm_deploy.quality.evaluating.conversion import InputCount, how_taken
from utvm_deploy.quality.evaluating.engines import (
    Plan,
    device_run,
    float_run,
    reference_run,
    stream_run,
)
from utvm_deploy.quality.evaluating.judging import changes, judged
from utvm_deploy.quality.evaluating.problem import problem_of

#: What data may be: a path, arrays by their names in an .npz file, or a dataset.
Data = str | Path | Mapping[str, Any] | Dataset

#: More of the inputs' values clipped than this: their scale is probably not the model's.
_CLIPPED_SHARE = 0.01


def checked_data(model: Any, data: Any, samples: Any) -> Data:
    """The data that a caller gave; UsageError for arguments that ``make_plan`` cannot take."""
    if not isinstance(model, str | Path):
        raise UsageError(
            f"an object of type {type(model).__name__} cannot be evaluated; give the path of a "
            "model file, such as one that save() of what quantize() gave has written"
        )
    if data is None or not isinstance(data, str | Path | Mapping | Dataset):
        given = "no data" if data is None else f"data of type {type(data).__name__}"
        raise UsageError(
            f"{given} cannot be evaluated; give the path of a dataset, or arrays such as "
            "{'inputs': x, 'labels': y}"
        )
    if samples is not None and (not isinstance(samples, int) or samples < 1):
        raise UsageError(f"samples is {samples!r}; give how many are run, at least 1")
    return data


def make_plan(
    path: Path,
    data: Data,
    settings: facts.Settings,
    *,
    reference: Path | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
    raw_type: str | None = None,
    custom: CustomOperators | None = None,
) -> Plan:
    """Read the model and the data, and check that they fit; nothing runs yet."""
    graph = load_model(path, custom)
    stream = None if chosen_now().stream is None else graph.stream
    if stream is not None:
        outputs = [graph.tensors[number].shape for number in graph.outputs]
        with given(stream=None):
            graph = load_model(path, custom, is_quiet=True)
        if outputs != [graph.tensors[number].shape for number in graph.outputs]:
            raise DataError(
                "the stream answers columns, not windows, so the data of windows say nothing of "
                "it; give a model with a pool over time"
            )
    inputs = tuple(ModelInput.of(graph.tensors[number]) for number in graph.inputs)
    if isinstance(data, Mapping):
        data = dataset_of_arrays(data, inputs)
    elif not isinstance(data, Dataset):
        data = load_dataset(data, inputs, labels=labels, raw_type=raw_type)
    if samples is not None:
        data = data.spread(samples)
    if reference is not None and not reference.exists():
        raise DataError(f"there is no float model {reference}; give its path")
    problem = problem_of(graph, data, settings, reference)
    return Plan(path, graph, data, problem, settings.output, reference, custom, stream)


def evaluated(
    plan: Plan,
    device: AbstractContextManager[DeviceModel] | None = None,
    progress: Progress = no_progress,
) -> facts.Evaluation:
    """Run all samples on this computer, and then on ``device``, which is entered by then."""
    count = InputCount()
    with given(stream=None):
        runs: list[facts.Run] = [] if plan.reference is None else [float_run(plan, progress)]
        runs.append(reference_run(plan, progress, count))
    if plan.stream is not None:
        runs.append(stream_run(plan, progress))
    board = None
    if device is not None:
        with device as model:
            runs.append(device_run(plan, model, progress))
            board = model.compiled.board
    # A float model may give infinities and NaN; their figures are not finite, either.
    with np.errstate(over="ignore", invalid="ignore"):
        found = changes(plan.problem, runs)
        figures = judged(plan.problem, runs)
    clipped = count.clipped / count.values if count.values else 0.0
    return facts.Evaluation(
        model=plan.graph.name,
        board=board,
        data=plan.data.origin,
        problem=plan.problem,
        inputs=how_taken(plan.data.batch(0, 1), plan.inputs),
        clipped=clipped,
        judged=figures,
        changes=found,
        notes=(
            *_notes(plan, found, clipped),
            *_not_finite(runs, plan.problem.word),
            *(
                tuple(order_note(plan.problem, figures[-1].confusion))
                or chance_note(plan.problem, figures)
            ),
        ),
    )


def _not_finite(runs: Sequence[facts.Run], word: str) -> Iterator[str]:
    for run in runs:
        bad = np.asarray(~np.isfinite(run.values.reshape(len(run.values), -1)).all(axis=1))
        if bad.any():
            yield (
                f"{run.engine} answers NaN or infinity to {int(bad.sum()):,} of {len(bad):,} {word}"
                "; check its weights and the scale of the data"
            )


def _notes(plan: Plan, found: tuple[facts.Change, ...], clipped: float) -> Iterator[str]:
    if clipped > _CLIPPED_SHARE:
        yield (
            f"{100 * clipped:.1f} % of the input values are outside of the range that the inputs "
            "hold, and were clipped; are the data scaled as the model was trained?"
        )
    outputs = len(plan.graph.outputs)
    if outputs > 1:
        yield f"the model has {outputs} outputs; the figures are those of output {plan.output}"
    made = (number for operator in plan.graph.operators for number in operator.outputs)
    if any(plan.graph.tensors[number].dtype == "float32" for number in made):
        return  # floats may differ within their bounds
    for change in found:
        exact = facts.REFERENCE if plan.stream is None else facts.STREAM
        if (change.before, change.after) == (exact, facts.DEVICE) and change.largest_difference:
            yield "the board and the reference kernels differ; `utvm verify` shows the layer"
