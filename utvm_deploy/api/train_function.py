"""``utvm_deploy.train``: a model learns on a board from labelled data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.api import steps
from utvm_deploy.api.compile_function import compile
from utvm_deploy.api.trainable_function import trainable
from utvm_deploy.base.errors import DataError, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, picked, plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import CYCLES
from utvm_deploy.device import Device, DeviceModel
from utvm_deploy.device.training import file_weights
from utvm_deploy.frontend.training.model import Trainable
from utvm_deploy.frontend.training.stored import TrainedWeights
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.datasets import Dataset, ModelInput, load_dataset
from utvm_deploy.quality.evaluating.conversion import InputCount

#: The inputs of a step, and its labels or targets.
Step: TypeAlias = tuple[list[Array], NDArray[Any]]
#: What ``to_dict`` says of an epoch: its number, 0 for the model before any step; the mean loss;
#: and what judges it then.
Epoch: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class TrainResult(Result):
    """What ``train`` found; ``weights.write(path)`` keeps what the model learned."""

    found: Mapping[str, Any]
    weights: TrainedWeights

    @property
    def headline(self) -> str:
        """How the last epoch went."""
        return "{model} on {board}: ".format(**self.found) + told(self.table[-1])

    @property
    def table(self) -> list[Epoch]:
        """A row for each epoch."""
        return list(self.found["epochs"])

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm train --json``."""
        return dict(self.found)


def told(epoch: Epoch) -> str:
    """An epoch for people."""
    words = [f"{key} {value:.4g}" for key, value in epoch.items() if value is not None]
    return ", ".join(words)


def train(
    model: str | Path | Any,
    data: str | Path | Dataset,
    board: Board | str | Path | Device,
    *,
    layers: str | Sequence[int | str] = "last",
    loss: str = "cross_entropy",
    optimizer: str = "sgd",
    rate: float = 0.01,
    epochs: int = 1,
    seed: int = 0,
    labels: str | Path | None = None,
    held_out: str | Path | Dataset | None = None,
    output: str | Path | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> TrainResult:
    """Train layers of a model on a board.

    - ``model``, ``layers``, ``loss``, ``optimizer`` and ``rate`` are as for ``trainable``.
    - ``data`` are labelled samples: a path as for ``evaluate``, or a ``datasets.Dataset``. They are
      read as the steps need them. ``labels`` is an .npy file with their labels or targets.
    - ``board`` is as for ``connect``, or a device: this stays open.
    - Each of ``epochs`` takes the samples in another order, which ``seed`` begins, as it
      does the masks of dropouts. A step takes as
      many as the model's batch. The rest waits for another epoch.
    - ``held_out`` are such data, too: all of them judge the model before any step, and at the end
      of each epoch.
    - ``output`` is a file that has the weights after each whole epoch, once it is judged.
    - ``on_epoch(epoch)`` and ``progress(what, done, total)`` are called on the way.
    - ``options`` are those of ``compile``. ``weights`` are those to begin with.

    Cycles of emulated boards are modelled, never measured on silicon. Raises DataError for data
    that do not fit, ModelError where the loss is not finite, and as ``trainable``, ``compile`` and
    ``connect`` do.
    """
    if epochs < 1:
        raise UsageError(f"epochs is {epochs}; give at least 1")
    shown = progress or no_progress
    with steps.chosen_of(options, compile), steps.device_of(board, CYCLES) as device:
        recipe: dict[str, Any] = {"layers": layers, "loss": loss, "optimizer": optimizer}
        learner = trainable(model, name=options.get("name"), rate=rate, seed=seed, **recipe)
        given, judging = samples_of(learner, data, labels, held_out)
        compiled = steps.compile_fitting(learner, device.board, shown, **options)
        shown(f"building the image and starting {device.board.name}", 0, 1)
        loaded = device.load(compiled)
        total = epochs * given.steps + (0 if judging is None else (epochs + 1) * judging.steps)
        done = iter(range(total))

        def followed(samples: _Samples) -> Iterator[Step]:
            for one in samples.batches():
                shown(f"training on {device.board.name}: step", next(done), total)
                yield one

        order, found, ticks = np.random.default_rng(seed), list[Epoch](), 0
        for number in range(epochs + 1):
            mean = None
            if number:
                mixed = replace(given, data=given.data.shuffled(order))
                curve = loaded.train(followed(mixed))
                mean, ticks = curve.epochs[0], ticks + curve.ticks
                weights = file_weights(loaded, learner.recipe)
            row: Epoch = {"epoch": number, "loss": mean}
            if judging is not None:
                row |= _judged(loaded, judging, followed(judging))
            found.append(row)
            if number and output is not None:
                weights.write(output)
            if on_epoch is not None and (number or judging):
                on_epoch(row)
        made = _facts(loaded, learner) | {"data": given.data.origin, "samples": len(given.data)}
    made |= {"batch": given.batch, "steps": epochs * given.steps, "ticks": ticks}
    is_time = made["tick_unit"] != "instructions"
    made["step_s"] = ticks / made["steps"] / made["ticks_per_second"] if is_time else None
    return TrainResult(plain_object("utvm.train/1", made | {"epochs": found}), weights)


def samples_of(
    learner: Trainable,
    data: str | Path | Dataset,
    labels: str | Path | None,
    held_out: str | Path | Dataset | None,
) -> tuple[_Samples, _Samples | None]:
    """What trains and what judges, read and checked. Raises DataError."""
    given = _Samples.of(learner, data, labels)
    return given, None if held_out is None else _Samples.of(learner, held_out, None, judges=True)


@dataclass(frozen=True, eq=False)
class _Samples:
    """Data, as steps of a model take them."""

    data: Dataset
    steps: int
    inputs: tuple[ModelInput, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the inputs of a step
    batch: int
    classes: int | None

    @property
    def answers(self) -> NDArray[Any] | None:
        """A class or targets for each sample."""
        return self.data.targets if self.classes is None else self.data.labels

    @classmethod
    def of(
        cls, learner: Trainable, data: str | Path | Dataset, labels: Any, *, judges: bool = False
    ) -> _Samples:
        """Read and checked; what ``judges`` is used to its last sample. Raises DataError."""
        graph = learner.graph
        assert graph.training is not None
        *inputs, label = (graph.tensors[number] for number in graph.inputs)
        # Another first extent than that of the output does not count samples.
        is_batch = all(one.shape[:1] == label.shape[:1] for one in inputs)
        batch = label.shape[0] if is_batch else 1
        single = (replace(one, shape=(1, *one.shape[1:])) if is_batch else one for one in inputs)
        taken, classes = tuple(map(ModelInput.of, single)), graph.training.classes
        if not isinstance(data, Dataset):
            data = load_dataset(data, taken, labels=labels)
        steps = (len(data) + (batch - 1 if judges else 0)) // batch
        found = cls(data, steps, taken, tuple(one.shape for one in inputs), batch, classes)
        answers, names, each = found.answers, data.class_names, math.prod(label.shape) // batch
        if answers is None:
            what = "targets" if classes is None else "labels"
            wrong = f"have no {what}, which the loss {learner.recipe.loss} needs"
        elif not steps:
            wrong = f"have {len(data)} samples, and a step takes {batch}"
        elif answers[0].size != each:
            what = "targets" if classes is None else "labels"
            wrong = f"have {answers[0].size} {what} for each sample, and the model has {each}"
        elif classes is not None and len(names or range(classes)) != classes:
            # A name's class is its place among all names.
            wrong = f"name {len(names or ())} classes, and the model has {classes}"
        elif classes is not None and not 0 <= answers.min() <= answers.max() < classes:
            least, most = answers.min(), answers.max()
            wrong = f"have labels {least} to {most}, and the model has classes 0 to {classes - 1}"
        else:
            return found
        raise DataError(f"the data {data.origin} {wrong}; give others")

    def batches(self) -> Iterator[Step]:
        """The inputs and the labels of each step; the last one may have fewer labels than inputs.

        Samples of that step fill it up once more.
        """
        assert self.answers is not None
        for begin in range(0, self.steps * self.batch, self.batch):
            some = self.data.batch(begin, begin + self.batch)
            arrays = InputCount().taken(some, self.inputs)
            right = self.answers[begin : begin + self.batch]
            pairs = zip(arrays, self.shapes, strict=True)
            yield [np.resize(array, shape) for array, shape in pairs], right


def _judged(model: DeviceModel, samples: _Samples, steps: Iterator[Step]) -> dict[str, float]:
    """The share of right answers, or the mean square error."""
    found = []
    for inputs, right in steps:
        made = model.run(inputs)[0][0].reshape(samples.batch, -1)[: len(right)]
        if samples.classes:
            found.append(made.argmax(-1) == right)
        else:
            found.append(np.square(made - right.reshape(made.shape)).mean(-1))
    return {"accuracy" if samples.classes else "mse": float(np.mean(np.concatenate(found)))}


def _facts(model: DeviceModel, learner: Trainable) -> dict[str, Any]:
    """The model, its board and its memory."""
    compiled, device = model.compiled, model.device
    return {
        "model": compiled.name,
        "board": compiled.board,
        **asdict(learner.recipe),
        "weights": learner.weights,
        **picked(device.hello, "tick_unit", "ticks_per_second"),
        "is_modelled": device.is_modelled,
        "arena_bytes": compiled.arena_bytes,
        "tradeoff": asdict(compiled.tradeoff) if compiled.tradeoff else None,
        "ram_bytes": device.image.ram_bytes + compiled.arena_bytes + compiled.pool_bytes,
        "flash_bytes": device.image.flash_bytes,
    }
