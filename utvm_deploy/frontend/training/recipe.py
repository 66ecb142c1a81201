"""What a user chooses of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import UnsupportedOperator, UsageError

CROSS_ENTROPY, MSE = LOSSES = ("cross_entropy", "mse")
SGD, MOMENTUM_SGD, ADAM = OPTIMIZERS = ("sgd", "momentum", "adam")
#: What ``layers`` may say instead of a list.
LAST, ALL = "last", "all"
_MOST_TOLD = 12
#: The least and the largest number that float32 has.
_LEAST_RATE, _MOST_RATE = 2.0**-149, 2.0**128 - 2.0**104


@dataclass(frozen=True)
class Recipe:
    """How to train a model; ``utvm_deploy.trainable`` explains the words."""

    loss: str
    optimizer: str
    layers: str | Sequence[int | str]
    rate: float
    #: Of the masks of dropouts.
    seed: int = 0


def check_recipe(recipe: Recipe) -> None:
    """UsageError for a loss, an optimizer or a rate that is none."""
    for what, given, known in (
        ("loss", recipe.loss, LOSSES),
        ("optimizer", recipe.optimizer, OPTIMIZERS),
    ):
        if given not in known:
            raise UsageError(f"{what} {given!r} is unknown; give one of {', '.join(known)}")
    check_rate(recipe.rate)
    if not 0 <= recipe.seed < 1 << 32:
        raise UsageError(f"seed is {recipe.seed}; give a number from 0 to 4294967295")


def check_rate(rate: float) -> None:
    """UsageError for a learning rate that is none: NaN, for one, would be in all weights."""
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        raise UsageError(f"rate is {rate}; give a number above 0 that float32 has, such as 0.01")


def positions_of(
    names: Sequence[str], told: Sequence[str], wanted: str | Sequence[int | str]
) -> list[int]:
    """Which layers train, of those that can: "last", "all", or positions and names.

    ``told`` describes each layer. Raises UsageError with the layers that there are.
    """
    if not names:
        raise UnsupportedOperator(
            "no layer of the model can train: it has no dense layer, convolution or layer "
            "normalization with constant weights"
        )
    everything = list(range(len(names)))
    if isinstance(wanted, str):
        if wanted in (LAST, ALL):
            return everything[-1:] if wanted == LAST else everything
        wanted = [wanted]
    known = {name: position for position, name in enumerate(names)}
    found = set()
    for one in wanted:
        position = known.get(one, len(names)) if isinstance(one, str) else one
        if not isinstance(position, int) or not -len(names) <= position < len(names):
            shown = ", ".join(f"{i}: {text}" for i, text in enumerate(told[:_MOST_TOLD]))
            more = f" and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
            raise UsageError(f"no layer {one!r} can train; those that can: {shown}{more}")
        found.add(everything[position])
    if not found:
        raise UsageError('no layers are given; give "last", "all", or a list of layers')
    return sorted(found)
