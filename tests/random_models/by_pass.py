"""Random models in which the passes find work, with each pass alone and all together.

Weights that are drawn at random leave few channels constant, and no operator is there twice. So
``with_work`` changes a model's biases and weights, and computes some operators twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from unittest import mock

import numpy as np
from guarded import built_with
from tflite_writer import ModelWriter

from random_models.generator import generate, generate_network
from random_models.joined import grow_joined
from random_models.recipe import write
from random_models.runner import Outcome, Rig, samples_for
from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.compiler.stages import network
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import PASSES

#: All passes together; other names are those of PASSES.
TOGETHER = "together"
#: A bias that takes most sums to one end of the clamp.
_FAR = 1 << 22
_WITH_BIAS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_TWICE = (*_WITH_BIAS, "ADD", "MUL", "AVERAGE_POOL_2D", "MAX_POOL_2D", "LOGISTIC", "RESHAPE")
#: What the passes look for.
_FOR_PASSES = (
    *("ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D"),
    *("FULLY_CONNECTED", "MAX_POOL_2D", "MEAN", "MUL", "PAD", "QUANTIZE", "RELU", "RESHAPE"),
)


@dataclass
class PassRun:
    """Outcomes by pass; ``outcomes`` of a pass alone has the models that it changes."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

    def count(self, name: str) -> Counter[str]:
        """Verdict -> how many models with this pass."""
        return Counter(outcome.verdict.name for outcome in self.outcomes.get(name, ()))

    def faults(self) -> list[str]:
        """One line for each wrong model."""
        return [
            f"{outcome.name} with {name}: {outcome.verdict.value}: {outcome.detail}"
            for name, outcomes in self.outcomes.items()
            for outcome in outcomes
            if outcome.verdict.is_fault
        ]


def run_seeds(board: str, seeds: Sequence[int], *, is_quick: bool = False) -> PassRun:
    """Compare every byte and layer of random models with the oracle, with each pass that changes
    the model alone, and with all of them; ``is_quick`` is that of the rig.
    """
    found = PassRun()
    with Rig(board, is_quick=is_quick) as rig:
        for seed in seeds:
            for name, outcome in _outcomes(rig, seed):
                found.outcomes.setdefault(name, []).append(outcome)
    return found


def _outcomes(rig: Rig, seed: int) -> Iterator[tuple[str, Outcome]]:
    model = model_of(seed)
    path = model.save(rig.folder / f"seed_{seed}.tflite")
    try:
        yield TOGETHER, rig.check_file(path, samples_for(model))
        try:
            graph = load_model(path)
        except (ModelError, CompileError):
            return
        for one in PASSES:
            if one[1](graph) is graph:
                continue
            with mock.patch.object(network, "PASSES", (one,)), built_with("-O0"):
                yield one[0], rig.check_file(path, samples_for(model))
    finally:
        path.unlink()


def model_of(seed: int) -> ModelWriter:
    """The model of a seed: of any operators, of ``_FOR_PASSES``, a whole network, or one whose
    layers are joined, in turn.
    """
    makers = (
        *(generate, partial(generate, kinds=_FOR_PASSES)),
        *(generate_network, partial(generate_network, grow=grow_joined)),
    )
    return with_work(write(makers[seed % len(makers)](seed)), seed)


def with_work(model: ModelWriter, seed: int) -> ModelWriter:
    """The model with constant and unread channels, operators that compute the same, and dense
    layers of one row.
    """
    rng = np.random.default_rng(seed)
    for operator in model.operators:
        if operator.kind in _WITH_BIAS:
            _push_biases(model, operator.inputs[2:3], rng)
            if operator.kind != "DEPTHWISE_CONV_2D" and rng.random() < 0.3:
                _clear_weights(model, operator.inputs[1], rng)
    _compute_twice(model, rng)
    _compute_beside(model, rng)
    return model


def _compute_beside(model: ModelWriter, rng: np.random.Generator) -> None:
    """Add dense layers that read the row which another one reads."""
    for operator in model.operators:
        if operator.kind != "FULLY_CONNECTED":
            continue
        row, weights = (model.tensors[number] for number in operator.inputs[:2])
        if (row.dtype, weights.dtype) != ("int8", "int8"):
            continue
        if np.prod(row.shape) != weights.shape[1]:
            continue
        for _ in range(rng.integers(0, 4)):
            outputs = int(rng.choice((16, 16, 32, 5)))
            made = model.fully_connected(
                operator.inputs[0],
                rng.integers(-127, 128, (outputs, weights.shape[1])).astype(np.int8),
                None if rng.random() < 0.2 else rng.integers(-2000, 2000, outputs),
                weight_scale=[float(s) for s in rng.uniform(0.001, 0.02, outputs)],
                scale=float(rng.choice((0.1, 0.2))),
                zero_point=int(rng.choice((0, 0, 7))),
            )
            model.output(made)
        return


def _push_biases(model: ModelWriter, numbers: Sequence[int], rng: np.random.Generator) -> None:
    for number in numbers:
        spec = model.tensors[number] if number >= 0 else None
        if spec is None or spec.data is None or spec.dtype not in ("int32", "int64"):
            continue
        bias = np.frombuffer(spec.data, spec.dtype).copy()
        is_far = rng.random(bias.size) < rng.choice((0.0, 0.3, 0.8))
        far = _FAR if spec.dtype == "int32" else _FAR << 10
        bias[is_far] = (far * rng.choice((-1, 1), bias.size))[is_far]
        model.tensors[number] = replace(spec, data=bias.tobytes())


def _clear_weights(model: ModelWriter, number: int, rng: np.random.Generator) -> None:
    """Let the operator read only some channels of its input."""
    spec = model.tensors[number]
    if spec.data is None or spec.dtype != "int8" or any(spec.zero_points):
        return
    weights = np.frombuffer(spec.data, np.int8).reshape(spec.shape).copy()
    weights[..., rng.random(spec.shape[-1]) < 0.5] = 0
    model.tensors[number] = replace(spec, data=weights.tobytes())


def _compute_twice(model: ModelWriter, rng: np.random.Generator) -> None:
    """Add an operator's twin behind it, which some of the readers read."""
    places = [p for p, operator in enumerate(model.operators) if operator.kind in _TWICE]
    if not places or rng.random() < 0.3:
        return
    place = int(rng.choice(places))
    one = model.operators[place]
    (old,) = one.outputs
    new = len(model.tensors)
    model.tensors.append(replace(model.tensors[old], name=f"tensor_{new}"))
    is_read = False
    for position, reader in enumerate(model.operators[place + 1 :], place + 1):
        if old in reader.inputs and rng.random() < 0.5:
            inputs = [new if number == old else number for number in reader.inputs]
            model.operators[position] = replace(reader, inputs=inputs)
            is_read = True
    model.operators.insert(place + 1, replace(one, outputs=[new]))
    if not is_read:
        model.output(new)
