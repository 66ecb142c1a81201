"""A train step in Relax: the model, its loss, the gradients of its weights, and their new values.

main(inputs, label, rate, weights, optimizer's states) -> (output, loss, new weights and states)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax import transform as t

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, last_words
from utvm_deploy.frontend.relax.operators import shape_of
from utvm_deploy.frontend.relax.passes import MAIN, prepared_module
from utvm_deploy.frontend.training.gradients import register_gradients
from utvm_deploy.frontend.training.optimizers import LOSSES, OPTIMIZERS
from utvm_deploy.frontend.training.recipe import CROSS_ENTROPY, Recipe, positions_of
from utvm_deploy.frontend.training.weights import (
    Names,
    Weight,
    check_not_shared,
    trainable_layers,
    with_parameters,
)
from utvm_deploy.graph.model import Array

_ADJOINT = f"{MAIN}_adjoint"


@dataclass(frozen=True, eq=False)
class TrainStep:
    """The step, and what its states hold at first."""

    module: Any
    #: Of each parameter that is a state, in their order: its name and first value. The rate comes
    #: first, then the weights. The new values of all but the rate are the last outputs.
    states: tuple[tuple[str, Array], ...]
    weights: int
    #: Labels are below this; None where the label is a target of float32.
    classes: int | None


def train_step(module: Any, recipe: Recipe, names: Names) -> TrainStep:
    """The step of a module. Raises ModelError, UnsupportedOperator or UsageError."""
    register_gradients()
    prepared = prepared_module(module)
    layers = trainable_layers(prepared[MAIN], names)
    chosen = positions_of([one.name for one in layers], list(map(str, layers)), recipe.layers)
    check_not_shared(layers, chosen)
    weights = [weight for position in chosen for weight in layers[position].weights]
    with tvm.target.Target("c"):
        lost, classes = _with_loss(with_parameters(prepared, MAIN, weights), recipe, len(weights))
        first = len(lost[MAIN].params) - len(weights)
        try:
            gradient = t.Gradient(MAIN, list(lost[MAIN].params[first:]), 0)
            adjoint = gradient(lost)
        except Exception as exc:  # of many classes
            raise UnsupportedOperator(
                f"TVM cannot differentiate the model: {last_words(exc)}; train fewer layers"
            ) from exc
        return _with_updates(adjoint, recipe, weights, classes)


def _with_loss(module: Any, recipe: Recipe, weights: int) -> tuple[Any, int | None]:
    """main(inputs, label, weights) -> (loss, output), and the number of classes."""
    function = module[MAIN]
    output = _only_output(function)
    compared, classes = output, None
    shape = shape_of(output)
    if recipe.loss == CROSS_ENTROPY:
        compared = _logits(function, output)
        if len(shape) != 2:
            raise ModelError(
                f"cross_entropy needs an output of [batch, classes], and this one has {shape}; "
                'train with loss="mse"'
            )
        classes = shape[1]
    label = relax.Var(
        "label",
        relax.TensorType(shape[:1] if classes else shape, "int32" if classes else "float32"),
    )
    builder = relax.BlockBuilder()
    inputs, trained = function.params[:-weights], function.params[-weights:]
    with builder.function(MAIN, [*inputs, label, *trained]):
        with builder.dataflow():
            for binding in function.body.blocks[0].bindings:
                builder.emit_normalized(binding)
            loss = builder.emit_output(LOSSES[recipe.loss](builder.emit, compared, label), "loss")
            made = builder.emit_output(output, "output")
        builder.emit_func_output(relax.Tuple([loss, made]))
    return _replaced(module, builder.get()[MAIN]), classes


def _only_output(function: Any) -> Any:
    """The variable of the output."""
    found = function.body.body
    while not isinstance(found.ty, relax.TensorType) or not isinstance(found, relax.Var):
        made = found if isinstance(found, relax.Tuple) else _made(function, found)
        if not isinstance(made, relax.Tuple) or len(made.fields) != 1:
            raise ModelError(
                "only a model with one output can train; give the others up, or export one"
            )
        (found,) = made.fields
    return found


def _made(function: Any, variable: Any) -> Any:
    """What is bound to a variable; None to an input."""
    for binding in function.body.blocks[0].bindings:
        if binding.var.same_as(variable):
            return binding.value
    return None


def _logits(function: Any, output: Any) -> Any:
    """What goes into the softmax at the end of a model; its output if it has none."""
    made = _made(function, output)
    is_softmax = isinstance(made, ir.Call) and getattr(made.op, "name", "") in (
        "relax.nn.softmax",
        "relax.nn.log_softmax",
    )
    if is_softmax and int(made.attrs.axis) in (-1, len(shape_of(output)) - 1):
        return made.args[0]
    return output


def _with_updates(
    module: Any, recipe: Recipe, weights: Sequence[Weight], classes: int | None
) -> TrainStep:
    function, optimizer = module[_ADJOINT], OPTIMIZERS[recipe.optimizer]
    block = function.body.blocks[0]
    (loss, output), gradients = _adjoints(function)
    rate = relax.Var("rate", relax.TensorType((), "float32"))
    states: list[tuple[str, Array]] = [("learning rate", np.asarray(recipe.rate, np.float32))]
    states += [(weight.name, weight.values) for weight in weights]
    kept, parameters = [], list(function.params[-len(weights) :])
    for weight in weights:
        shape = weight.values.shape
        states += [(f"{weight.name} {one}", np.zeros(shape, np.float32)) for one in optimizer.own]
        kept.append([relax.Var(one, relax.TensorType(shape, "float32")) for one in optimizer.own])
    states += [(name, np.zeros((), np.float32)) for name in optimizer.shared]
    shared = [relax.Var("shared", relax.TensorType((), "float32")) for _ in optimizer.shared]
    own = [one for some in kept for one in some]
    builder = relax.BlockBuilder()
    given = [*function.params[: -len(weights)], rate, *parameters, *own, *shared]
    with builder.function(MAIN, given):
        with builder.dataflow():
            for binding in block.bindings:
                builder.emit_normalized(binding)
            after = optimizer.advance(builder.emit, shared)
            updated, left = [], []
            for weight, gradient, some in zip(parameters, gradients, kept, strict=True):
                new, others = optimizer.update(builder.emit, weight, gradient, rate, some, after)
                updated.append(new)
                left += others
            made = [builder.emit_output(one) for one in (output, loss, *updated, *left, *after)]
        builder.emit_func_output(relax.Tuple(made))
    return TrainStep(_replaced(module, builder.get()[MAIN]), tuple(states), len(weights), classes)


def _adjoints(function: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """What ``Gradient`` returns: the outputs, and the gradients."""

    def fields(value: Any) -> Sequence[Any]:
        if isinstance(value, relax.Var):
            value = _made(function, value)
        return list(value.fields)

    outputs, gradients = fields(function.body.body)
    return fields(outputs), fields(gradients)


def _replaced(module: Any, function: Any) -> Any:
    """The module with another ``main``, and the PrimFuncs that it calls."""
    others = {
        name: one for name, one in module.functions_items() if not isinstance(one, relax.Function)
    }
    return ir.IRModule({**others, module.get_global_var(MAIN): function})
