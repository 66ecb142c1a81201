"""The losses, and what an optimizer does with a gradient, in Relax; both as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax
from tvm.relax import op

from utvm_deploy.frontend.relax.operators import shape_of
from utvm_deploy.frontend.training.convolutions import WEIGHTS
from utvm_deploy.frontend.training.recipe import ADAM, CROSS_ENTROPY, MOMENTUM_SGD, MSE, SGD

#: PyTorch's defaults of Adam, and the usual momentum of SGD.
MOMENTUM, BETA_1, BETA_2, EPSILON = 0.9, 0.9, 0.999, 1e-8

#: Above this bound, a gradient or what an optimizer makes of it may overflow float32.
LIMIT = 1e38
#: A step of Adam is below this many rates. The bound of |mean| / sqrt(variance), corrected, is
#: (1 - beta_1) / sqrt((1 - beta_2) (1 - beta_1^2 / beta_2)): 7.3 for these betas.
_MOST_RATES = 32.0

#: Emits an expression into the function that is built; gives its variable.
Emit: TypeAlias = Callable[[Any], Any]


def _number(value: float) -> Any:
    return relax.const(value, "float32")


def cross_entropy(emit: Emit, logits: Any, label: Any) -> Any:
    """The mean over the batch of -log softmax(logits)[label]; ``label`` is int32 [batch]."""
    shape = shape_of(logits)
    rows = emit(op.nn.log_softmax(logits, -1))
    classes = relax.const(np.arange(shape[-1], dtype=np.int32))
    chosen = emit(op.astype(op.equal(op.expand_dims(label, [1]), classes), "float32"))
    total = emit(op.sum(op.multiply(rows, op.grad.no_grad(chosen))))
    return op.multiply(total, _number(-1.0 / shape[0]))


def mean_squared_error(emit: Emit, output: Any, target: Any) -> Any:
    """The mean of all squared differences; ``target`` has the shape of the output."""
    difference = emit(op.subtract(output, op.grad.no_grad(target)))
    return op.mean(emit(op.multiply(difference, difference)))


#: Gives a state's new value to be written: the old one, once a step is refused.
Keep: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of all weights."""

    #: The states of each weight, and those that all of them share; all are 0 at first.
    own: tuple[str, ...]
    shared: tuple[str, ...]
    #: (keep, weight, gradient, rate, own states, new shared states) -> new weight, new own states.
    update: Callable[[Keep, Any, Any, Any, Sequence[Any], Sequence[Any]], tuple[Any, list[Any]]]
    #: The new shared states.
    advance: Callable[[Emit, Sequence[Any]], list[Any]]
    #: (gradient, rate, own states) -> bounds of the new own states, and of what is subtracted
    #: from the weight. The gradient and the states are bounds of their elements' absolute values.
    reach: Callable[[Any, Any, Sequence[Any]], tuple[list[Any], Any]]


def _none(_emit: Emit, _shared: Sequence[Any]) -> list[Any]:
    return []


def _sgd(
    keep: Keep, weight: Any, gradient: Any, rate: Any, _own: Sequence[Any], _shared: Sequence[Any]
) -> tuple[Any, list[Any]]:
    return keep(op.subtract(weight, op.multiply(rate, gradient)), weight), []


def _sgd_reach(gradient: Any, rate: Any, _own: Sequence[Any]) -> tuple[list[Any], Any]:
    return [], op.multiply(rate, gradient)


def _momentum(
    keep: Keep, weight: Any, gradient: Any, rate: Any, own: Sequence[Any], _shared: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """v = 0.9 v + g; w = w - rate v (torch.optim.SGD)."""
    velocity = keep(op.add(op.multiply(own[0], _number(MOMENTUM)), gradient), own[0])
    return keep(op.subtract(weight, op.multiply(rate, velocity)), weight), [velocity]


def _momentum_reach(gradient: Any, rate: Any, own: Sequence[Any]) -> tuple[list[Any], Any]:
    velocity = op.add(own[0], gradient)
    return [velocity], op.multiply(rate, velocity)


def _adam(
    keep: Keep, weight: Any, gradient: Any, rate: Any, own: Sequence[Any], shared: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """Kingma and Ba, "Adam", 2015, algorithm 1; ``shared`` are 1 - beta^t of both betas."""
    square = op.multiply(gradient, gradient)
    first = keep(_mixed(own[0], gradient, BETA_1), own[0])
    second = keep(_mixed(own[1], square, BETA_2), own[1])
    root = op.sqrt(op.divide(second, shared[1]))
    step = op.divide(op.divide(first, shared[0]), op.add(root, _number(EPSILON)))
    return keep(op.subtract(weight, op.multiply(rate, step)), weight), [first, second]


def _adam_reach(gradient: Any, rate: Any, own: Sequence[Any]) -> tuple[list[Any], Any]:
    states = [op.add(own[0], gradient), op.add(own[1], op.multiply(gradient, gradient))]
    return states, op.multiply(rate, _number(_MOST_RATES))


def _mixed(old: Any, new: Any, beta: float) -> Any:
    return op.add(op.multiply(old, _number(beta)), op.multiply(new, _number(1.0 - beta)))


def _corrections(emit: Emit, shared: Sequence[Any]) -> list[Any]:
    """c = 1 - beta^t of the next step: beta c + 1 - beta."""
    return [
        emit(_mixed(one, _number(1.0), beta))
        for one, beta in zip(shared, (BETA_1, BETA_2), strict=True)
    ]


def still_sound(
    emit: Emit,
    sound: Any,
    optimizer: Optimizer,
    given: tuple[Any, Any, Any, Sequence[Any]],
    made: Any,
) -> Any:
    """1.0 if ``sound`` is, and an update of a weight stays finite; else 0.0.

    ``given`` is the weight, its gradient, the rate and the weight's own states. ``made`` is the
    call that makes the gradient. A gradient that is a sum of products is bounded by the product of
    the sums of both operands. So it need not be kept until it is looked at.
    """

    def total(value: Any) -> Any:
        """A bound of the elements; NaN if one is NaN."""
        return emit(op.sum(emit(op.abs(value))))

    weight, gradient, rate, own = given
    name, factors = getattr(getattr(made, "op", None), "name", ""), [gradient]
    if name == "relax.einsum":
        factors = list(made.args[0].fields)
    elif name == "relax.call_tir" and made.args[0].name_hint.startswith(WEIGHTS):
        factors = list(made.args[1].fields)
    bound = total(factors[0])
    for factor in factors[1:]:
        bound = emit(op.multiply(bound, total(factor)))
    states, step = optimizer.reach(bound, rate, [total(one) for one in own])
    for reached in (*states, op.add(total(weight), step)):
        fits = emit(op.less_equal(emit(reached), _number(LIMIT)))
        sound = emit(op.where(fits, sound, _number(0.0)))
    return sound


OPTIMIZERS: Mapping[str, Optimizer] = {
    SGD: Optimizer((), (), _sgd, _none, _sgd_reach),
    MOMENTUM_SGD: Optimizer(("velocity",), (), _momentum, _none, _momentum_reach),
    ADAM: Optimizer(
        ("mean", "variance"),
        ("weight of means", "weight of variances"),
        _adam,
        _corrections,
        _adam_reach,
    ),
}
#: Loss -> what makes it of the model's output and the label.
LOSSES: Mapping[str, Callable[[Emit, Any, Any], Any]] = {
    CROSS_ENTROPY: cross_entropy,
    MSE: mean_squared_error,
}
