"""Training of a model on a device, and its weights as bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.compiler.compiled.model import CompiledModel, TrainedPart
from utvm_deploy.frontend.training.recipe import Recipe, check_rate
from utvm_deploy.frontend.training.stored import TrainedWeights, check_stored
from utvm_deploy.graph.model import Array

if TYPE_CHECKING:
    from utvm_deploy.device.model import DeviceModel


@dataclass(frozen=True)
class TrainingCurve:
    """The loss before each step, and what the steps took."""

    losses: tuple[float, ...]
    #: Of each epoch: the mean of its losses.
    epochs: tuple[float, ...]
    #: Ticks of the device in all steps.
    ticks: int


def part_of(compiled: CompiledModel) -> TrainedPart:
    """How the model trains; UsageError if it does not."""
    if compiled.training is None:
        raise UsageError(
            f"{compiled.name} cannot train; compile what utvm_deploy.trainable(model) gives"
        )
    return compiled.training


def train(
    model: DeviceModel, data: Any, epochs: int, seed: int, rate: float | None
) -> TrainingCurve:
    """Train on inputs and labels; see ``DeviceModel.train``."""
    part = part_of(model.compiled)
    if epochs < 1:
        raise UsageError(f"epochs is {epochs}; give at least 1")
    if rate is not None:
        check_rate(rate)
        place = model.arena_address + model.compiled.states[part.weights + 1].offset
        model.device.session.write(place, np.asarray(rate, np.float32).tobytes())
    steps, means, order = list[tuple[float, int]](), list[float](), np.random.default_rng(seed)
    for epoch in range(epochs):
        now = [model.train_step(*one) for one in _batches(data, part.label.shape[0], order)]
        if not now:
            told = "is empty" if epoch == 0 else "gave nothing the second time; give a list"
            raise UsageError(f"the data {told}")
        steps += now
        means.append(float(np.mean([loss for loss, _ in now])))
    losses, ticks = zip(*steps, strict=True)
    return TrainingCurve(losses, tuple(means), sum(ticks))


def _batches(
    data: Any, batch: int, order: np.random.Generator
) -> Iterator[tuple[Sequence[Array], Array]]:
    """The inputs and the label of each step."""
    is_pair = isinstance(data, tuple) and len(data) == 2
    if not is_pair or not all(hasattr(one, "shape") for one in data):
        for one in data:
            if not isinstance(one, tuple | list) or len(one) != 2:
                raise UsageError("the data must give pairs of inputs and a label for each step")
            inputs, label = one
            yield inputs if isinstance(inputs, tuple | list) else (inputs,), np.asarray(label)
        return
    inputs, labels = (np.asarray(one) for one in data)
    if len(inputs) != len(labels):
        raise UsageError(f"there are {len(inputs)} inputs and {len(labels)} labels")
    if len(inputs) < batch:
        raise UsageError(f"there are {len(inputs)} inputs, and a step takes {batch}")
    places = order.permutation(len(inputs))
    for begin in range(0, len(places) - batch + 1, batch):
        some = places[begin : begin + batch]
        yield (inputs[some],), labels[some]


def train_step(model: DeviceModel, inputs: Sequence[Array], label: Any) -> tuple[float, int]:
    """One step; see ``DeviceModel.train_step``."""
    part, arena = part_of(model.compiled), model.arena_address
    right = _checked_label(part, label)
    for one in (*inputs, right):
        if not np.isfinite(np.asarray(one)).all():
            raise ModelError("an input or a target has infinite values or NaN; leave it out")
    model.set_inputs(inputs)
    session = model.device.session
    session.write(arena + part.label.offset, right.tobytes())
    ends = (*model.compiled.inputs, part.label, part.loss)
    call = model.call_function(
        f"{model.compiled.name}_train_step",
        *(arena, *model.pool_addresses, *(arena + one.offset for one in ends)),
        timeout_s=model.timeout_s,
    )
    (ticks,) = call.ticks.all
    loss = float(np.frombuffer(session.read(arena + part.loss.offset, 4), "<f4")[0])
    if not math.isfinite(loss):
        raise ModelError(
            f"the loss of {model.compiled.name} is {loss}, so this step has changed no weight; "
            "take a smaller learning rate, or check the data"
        )
    rate = session.read(arena + model.compiled.states[part.updates_rate].offset, 4)
    if not math.isfinite(np.frombuffer(rate, "<f4")[0]):
        raise ModelError(
            f"an update of {model.compiled.name} would overflow float32, so this weight and those "
            "of the layers in front of it are as before the step; take a smaller learning rate"
        )
    return loss, ticks


def stored_weights(model: DeviceModel) -> bytes:
    """The weights as ``NAME_store`` stores them."""
    part, device = part_of(model.compiled), model.device
    size = device.allocate(4, "bytes of the weights")
    try:
        name = f"{model.compiled.name}_store"
        model.call_function(name, model.arena_address, size, timeout_s=model.timeout_s)
        place = model.arena_address + part.stored.offset
        return device.session.read(place, part.stored.size_bytes)
    finally:
        device.free(size)


def file_weights(model: DeviceModel, recipe: Recipe) -> TrainedWeights:
    """The weights as a file has them; ``recipe`` is that of the model."""
    part = part_of(model.compiled)
    states = model.compiled.states[1 : 1 + part.weights]
    parts = ((one.name, one.shape, one.offset - part.stored.offset) for one in states)
    return TrainedWeights(recipe, tuple(parts), stored_weights(model))


def restore(model: DeviceModel, stored: bytes) -> None:
    """Take weights, after the checks that ``NAME_restore`` does; see ``DeviceModel.restore``."""
    part, compiled, session = part_of(model.compiled), model.compiled, model.device.session
    check_stored(stored, compiled.model_digest, compiled.name, part.stored.size_bytes)
    session.write(model.arena_address + part.stored.offset, stored)
    for state in compiled.states[part.updates_rate + 1 :]:
        session.write(model.arena_address + state.offset, bytes(state.size_bytes))


def _checked_label(part: TrainedPart, label: Any) -> Array:
    """The label as the device takes it. Raises ModelError for one that does not fit."""
    array: NDArray[Any] = np.asarray(label)
    if part.classes is not None and array.dtype.kind not in "iu":
        raise ModelError(f"labels are {array.dtype}; give integers")
    if array.size != math.prod(part.label.shape):
        raise ModelError(f"the label has shape {array.shape}; give one of shape {part.label.shape}")
    array = array.reshape(part.label.shape)
    if part.classes is None:
        return array.astype(np.float32)
    wrong = array[(array < 0) | (array >= part.classes)]
    if wrong.size:
        raise ModelError(
            f"label {int(wrong[0])} is out of range; the model has classes 0 to {part.classes - 1}"
        )
    return array.astype(np.int32)
