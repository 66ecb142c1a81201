"""The losses, and what an optimizer does with a gradient, in Relax; both as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax
from tvm.relax import op

from utvm_deploy.frontend.relax.operators import operator_name, scalar, shape_of
from utvm_deploy.frontend.training.convolutions import WEIGHTS
from utvm_deploy.frontend.training.recipe import ADAM, CROSS_ENTROPY, MOMENTUM_SGD, MSE, SGD

#: PyTorch's defaults of Adam, and the usual momentum of SGD.
MOMENTUM, BETA_1, BETA_2, EPSILON = 0.9, 0.9, 0.999, 1e-8

#: A gradient and a rate within these move no weight by more than 2^100, for any optimizer here.
#: A velocity is below 2^64, and Adam moves a weight by less than 8 rates.
MOST_GRADIENT, MOST_RATE = 2.0**60, 2.0**36
#: Weights of at most this stay so: a sum of this and 2^100 is rounded to this.
MOST_WEIGHT = 2.0**126

#: Emits an expression into the function that is built; gives its variable.
Emit: TypeAlias = Callable[[Any], Any]


def cross_entropy(emit: Emit, logits: Any, label: Any) -> Any:
    """The mean over the batch of -log softmax(logits)[label]; ``label`` is int32 [batch]."""
    shape = shape_of(logits)
    rows = emit(op.nn.log_softmax(logits, -1))
    classes = relax.const(np.arange(shape[-1], dtype=np.int32))
    chosen = emit(op.astype(op.equal(op.expand_dims(label, [1]), classes), "float32"))
    total = emit(op.sum(op.multiply(rows, op.grad.no_grad(chosen))))
    return op.multiply(total, scalar(-1.0 / shape[0]))


def mean_squared_error(emit: Emit, output: Any, target: Any) -> Any:
    """The mean of all squared differences; ``target`` has the shape of the output."""
    difference = emit(op.subtract(output, op.grad.no_grad(target)))
    return op.mean(emit(op.multiply(difference, difference)))


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of all weights."""

    #: (emit, weight, gradient, rate, own states, new shared states) -> new weight, new own states.
    update: Callable[[Emit, Any, Any, Any, Sequence[Any], Sequence[Any]], tuple[Any, list[Any]]]
    #: The states of each weight, and those that all of them share; all are 0 at first.
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    #: The new shared states.
    advance: Callable[[Emit, Sequence[Any]], list[Any]] = lambda _emit, _shared: []


def _sgd(
    emit: Emit, weight: Any, gradient: Any, rate: Any, _own: Sequence[Any], _shared: Sequence[Any]
) -> tuple[Any, list[Any]]:
    return emit(op.subtract(weight, op.multiply(rate, gradient))), []


def _momentum(
    emit: Emit, weight: Any, gradient: Any, rate: Any, own: Sequence[Any], _shared: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """v = 0.9 v + g; w = w - rate v (torch.optim.SGD)."""
    velocity = emit(op.add(op.multiply(own[0], scalar(MOMENTUM)), gradient))
    return emit(op.subtract(weight, op.multiply(rate, velocity))), [velocity]


def _adam(
    emit: Emit, weight: Any, gradient: Any, rate: Any, own: Sequence[Any], shared: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """Kingma and Ba, "Adam", 2015, algorithm 1; ``shared`` are 1 - beta^t of both betas."""
    square = op.multiply(gradient, gradient)
    first = emit(_mixed(own[0], gradient, BETA_1))
    second = emit(_mixed(own[1], square, BETA_2))
    root = op.sqrt(op.divide(second, shared[1]))
    step = op.divide(op.divide(first, shared[0]), op.add(root, scalar(EPSILON)))
    return emit(op.subtract(weight, op.multiply(rate, step))), [first, second]


def _mixed(old: Any, new: Any, beta: float) -> Any:
    return op.add(op.multiply(old, scalar(beta)), op.multiply(new, scalar(1.0 - beta)))


def _corrections(emit: Emit, shared: Sequence[Any]) -> list[Any]:
    """c = 1 - beta^t of the next step: beta c + 1 - beta."""
    return [
        emit(_mixed(one, scalar(1.0), beta))
        for one, beta in zip(shared, (BETA_1, BETA_2), strict=True)
    ]


def unless_above(emit: Emit, rate: Any, bound: Any, most: float) -> Any:
    """The rate of the next updates; infinite if a bound is NaN or above ``most``."""
    fits = emit(op.less_equal(bound, scalar(most)))
    return emit(op.where(fits, rate, scalar(float("inf"))))


def bound_of(emit: Emit, gradient: Any, made: Any) -> Any:
    """What no element of a gradient exceeds; NaN if one is NaN. ``made`` is the call that makes it.

    An element that is a sum of products is bounded by the product of the sums of both operands, and
    a sum of elements by that of all. So the gradient need not be kept until it is looked at.
    """
    name, factors = operator_name(made), [gradient]
    if name == "relax.einsum":
        factors = list(made.args[0].fields)
    elif name == "relax.call_tir" and made.args[0].name_hint.startswith(WEIGHTS):
        factors = list(made.args[1].fields)
    elif name in ("relax.collapse_sum_to", "relax.reshape"):
        factors = [made.args[0]]
    first, *others = (emit(op.sum(emit(op.abs(factor)))) for factor in factors)
    for other in others:
        first = emit(op.multiply(first, other))
    return first


OPTIMIZERS: Mapping[str, Optimizer] = {
    SGD: Optimizer(_sgd),
    MOMENTUM_SGD: Optimizer(_momentum, ("velocity",)),
    ADAM: Optimizer(
        _adam, ("mean", "variance"), ("weight of means", "weight of variances"), _corrections
    ),
}
#: Loss -> what makes it of the model's output and the label.
LOSSES: Mapping[str, Callable[[Emit, Any, Any], Any]] = {
    CROSS_ENTROPY: cross_entropy,
    MSE: mean_squared_error,
}
