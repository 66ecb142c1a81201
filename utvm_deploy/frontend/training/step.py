"""A train step in Relax: the model, its loss, the gradients of its weights, and their new values.

main(inputs, label, weights, rate, optimizer's states)
-> (output, loss, new weights, rates of the updates, new states)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax import transform as t

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, last_words
from utvm_deploy.frontend.relax.operators import shape_of
from utvm_deploy.frontend.relax.passes import MAIN, prepared_module
from utvm_deploy.frontend.training.dropout import (
    STEPS,
    Dropout,
    counting,
    with_masks,
    without_masks,
)
from utvm_deploy.frontend.training.gradients import register_gradients
from utvm_deploy.frontend.training.optimizers import (
    LOSSES,
    MOST_GRADIENT,
    MOST_RATE,
    MOST_WEIGHT,
    OPTIMIZERS,
    bound_of,
    unless_above,
)
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
    #: Of each parameter that is a state, in their order: its name and first value. They are the
    #: weights, the rate, and what the optimizer knows. The last outputs are their new values; that
    #: of the rate is one for each update, infinite from the first update on that is refused.
    states: tuple[tuple[str, Array], ...]
    weights: int
    #: The weights in the order of their updates, and how many states each has in the optimizer.
    order: tuple[int, ...]
    own: int
    #: Labels are below this; None where the label is a target of float32.
    classes: int | None


def train_step(module: Any, recipe: Recipe, names: Names) -> TrainStep:
    """The step of a module. Raises ModelError, UnsupportedOperator or UsageError."""
    register_gradients()
    prepared, drops = with_masks(module, MAIN)
    prepared = prepared_module(prepared)
    layers = trainable_layers(prepared[MAIN], names)
    chosen = positions_of([one.name for one in layers], list(map(str, layers)), recipe.layers)
    check_not_shared(layers, chosen)
    weights = [weight for position in chosen for weight in layers[position].weights]
    for one in weights:
        if not np.abs(one.values).max() <= MOST_WEIGHT:
            raise ModelError(
                f"{one.name} has infinite or huge values, or NaN; only finite weights train"
            )
    with tvm.target.Target("c"):
        moving = with_parameters(prepared, MAIN, weights)
        lost, classes = _with_loss(moving, recipe, len(weights), drops)
        first = len(lost[MAIN].params) - len(weights)
        try:
            gradient = t.Gradient(MAIN, list(lost[MAIN].params[first:]), 0)
            adjoint = gradient(lost)
        except Exception as exc:  # of many classes
            raise UnsupportedOperator(
                f"TVM cannot differentiate the model: {last_words(exc)}; train fewer layers"
            ) from exc
        return _with_updates(adjoint, recipe, weights, classes, bool(drops))


def _with_loss(
    module: Any, recipe: Recipe, weights: int, drops: Sequence[Dropout]
) -> tuple[Any, int | None]:
    """main(inputs, label, weights) -> (loss, output), and the number of classes.

    With dropouts, the number of the step is in front of the weights. The model is there twice then:
    for the loss with masks, and for the output without. Passes make one of equal parts.
    """
    function = module[MAIN]
    shape, classes = shape_of(_only_output(function)), None
    if recipe.loss == CROSS_ENTROPY:
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
    inputs, trained = function.params[: -weights - len(drops)], function.params[-weights:]
    masks = function.params[len(inputs) : -weights]
    step = relax.Var(STEPS, relax.TensorType((), "float32"))
    plain = without_masks(module, MAIN, masks)[MAIN]
    with builder.function(MAIN, [*inputs, label, *([step] if drops else []), *trained]):
        with builder.dataflow():
            drawn = (drop.emitted(builder, step, recipe.seed) for drop in drops)
            ones = (relax.const(np.ones(drop.shape, np.float32)) for drop in drops)
            lost = _emitted(builder, function, dict(zip(masks, drawn, strict=True)))
            kept = _emitted(builder, plain, dict(zip(masks, ones, strict=True))) if drops else lost
            compared = _logits(lost) if classes else _only_output(lost)
            loss = builder.emit_output(LOSSES[recipe.loss](builder.emit, compared, label), "loss")
            made = builder.emit_output(_only_output(kept), "output")
        builder.emit_func_output(relax.Tuple([loss, made]))
    return _replaced(module, builder.get()), classes


def _emitted(builder: Any, function: Any, masks: Mapping[Any, Any]) -> Any:
    """A copy of the function with values for its masks, whose bindings the builder has then."""
    made = relax.utils.copy_with_new_vars(function)
    values = (masks.get(one, one) for one in function.params)
    made = made.bind_params(dict(zip(made.params, values, strict=True)))
    for binding in made.body.blocks[0].bindings:
        builder.emit_normalized(binding)
    return made


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


def _logits(function: Any) -> Any:
    """What goes into the softmax at the end of a model; its output if it has none."""
    output = _only_output(function)
    made = _made(function, output)
    is_softmax = isinstance(made, ir.Call) and getattr(made.op, "name", "") in (
        "relax.nn.softmax",
        "relax.nn.log_softmax",
    )
    if is_softmax and int(made.attrs.axis) in (-1, len(shape_of(output)) - 1):
        return made.args[0]
    return output


def _with_updates(
    module: Any, recipe: Recipe, weights: Sequence[Weight], classes: int | None, drops: bool
) -> TrainStep:
    function, optimizer = module[_ADJOINT], OPTIMIZERS[recipe.optimizer]
    optimizer = counting(optimizer) if drops else optimizer
    (loss, output), gradients = _adjoints(function)
    states = [(weight.name, weight.values) for weight in weights]
    states.append(("rate of the updates", np.asarray(recipe.rate, np.float32)))
    for weight in weights:
        empty = np.zeros(weight.values.shape, np.float32)
        states += [(f"{weight.name} {one}", empty) for one in optimizer.own]
    states += [(name, np.zeros((), np.float32)) for name in optimizer.shared]
    new = [relax.Var("state", relax.TensorType(first.shape, "float32")) for _, first in states]
    count = len(weights)
    parameters = list(function.params[-count:])
    inputs = function.params[: -count - drops]
    new[len(new) - drops :] = function.params[len(inputs) : -count]
    rate, own, shared = new[count], new[1 + count :], new[len(new) - len(optimizer.shared) :]
    builder = relax.BlockBuilder()
    emit = builder.emit
    given = [*inputs, *parameters, *new[count:]]
    with builder.function(MAIN, given):
        with builder.dataflow():
            after = optimizer.advance(emit, shared)
            updated, left, order = list(parameters), list(own), list[int]()
            rates = [unless_above(emit, rate, emit(relax.op.abs(rate)), MOST_RATE)]
            for binding in function.body.blocks[0].bindings:
                builder.emit_normalized(binding)
                for position, weight in enumerate(parameters):
                    gradient = gradients[position]
                    if gradient.same_as(binding.var):
                        place = position * len(optimizer.own)
                        of_weight = slice(place, place + len(optimizer.own))
                        bound = bound_of(emit, gradient, binding.value)
                        rates.append(unless_above(emit, rates[-1], bound, MOST_GRADIENT))
                        of = (weight, gradient, rates[-1], own[of_weight])
                        updated[position], left[of_weight] = optimizer.update(emit, *of, after)
                        order.append(position)
            ends = (output, loss, *updated, *rates[1:], *left[: len(own) - len(shared)], *after)
            results = [builder.emit_output(one) for one in ends]
        builder.emit_func_output(relax.Tuple(results))
    made = _replaced(module, builder.get())
    return TrainStep(made, tuple(states), count, tuple(order), len(optimizer.own), classes)


def _adjoints(function: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """What ``Gradient`` returns: the outputs, and the gradients, each as it was first bound."""

    def first(value: Any) -> Any:
        while isinstance(value, relax.Var) and isinstance(
            made := _made(function, value), relax.Var | relax.Tuple
        ):
            value = made
        return value

    outputs, gradients = first(function.body.body).fields
    return first(outputs).fields, [first(one) for one in first(gradients).fields]


def _replaced(module: Any, made: Any) -> Any:
    """What a builder made, and the PrimFuncs of the module that it calls."""
    known = {one.name_hint for one in made.get_global_vars()}
    for name, one in module.functions_items():
        if not isinstance(one, relax.Function) and name.name_hint not in known:
            made[name] = one
    return made
