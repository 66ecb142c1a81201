"""Chooses the layers whose weights become int4, in files whose activations are chosen already.

Layers are ordered by what int4 saves there for the error that it adds. Files with the first 0, 1, 2
... of them in int4 are made and compared. So a loss is measured, and never estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from utvm_deploy.compiler.options import FLASH_RATE
from utvm_deploy.quality.precision.affording import (
    CLEARLY_FASTER,
    MOST_MEASURED,
    Candidate,
    Measure,
    places,
)
from utvm_deploy.quality.precision.facts import Budgets, LayerSensitivity, ModelPrice
from utvm_deploy.quality.precision.sensitivity import noise
from utvm_deploy.quality.quantizing.child_steps import RecipeResult
from utvm_deploy.quality.quantizing.facts import INT4, INT8, Recipe

#: The least noise that counts, as a part of the signal's power.
_LEAST_NOISE = 1e-20
#: Recipes -> the file that each makes, and its loss.
Make = Callable[[Sequence[Recipe]], Sequence[tuple[RecipeResult, float]]]


def narrowing_order(rows: Sequence[LayerSensitivity], elements: Mapping[str, int]) -> list[str]:
    """Outputs of the layers that can have int4, the most worthwhile first.

    ``elements`` has the elements of each layer's weights. Two of them share a byte that was two.
    Layers whose ticks cost more than their bytes are worth come last.
    """

    def key(row: LayerSensitivity) -> tuple[bool, float]:
        saved = elements.get(row.output, 0) / 2
        gain = saved * FLASH_RATE
        if INT4 in row.prices and INT8 in row.prices:
            gain -= row.prices[INT4].ticks - row.prices[INT8].ticks
        added = max(noise(row.sqnr_db[INT4]) - noise(row.sqnr_db[INT8]), _LEAST_NOISE)
        return gain <= 0, -(gain if gain > 0 else saved) / added

    return [row.output for row in sorted((one for one in rows if INT4 in one.sqnr_db), key=key)]


def narrowed(base: Candidate, order: Sequence[str], make: Make, most: int) -> list[Candidate]:
    """Files with more and more layers in int4, beginning with one; at most about ``most``.

    Layers with int16 activations stay as they are.
    """
    left = [output for output in order if output not in base.wide]
    if base.recipe.scheme != INT8 or not left:
        return []
    counts = places(len(left), most)
    recipes = [replace(base.recipe, narrow=tuple(left[:count])) for count in counts]
    return [
        Candidate(base.wide, recipe, result, loss)
        for recipe, (result, loss) in zip(recipes, make(recipes), strict=True)
    ]


def smallest(chosen: Candidate, files: Sequence[Candidate], max_loss: float) -> Candidate:
    """The smallest of the files that lose least; a loss below ``max_loss`` counts as this."""
    return min((chosen, *files), key=lambda one: (max(one.loss, max_loss), one.size))


def cheapest(
    chosen: tuple[Candidate, ModelPrice] | None,
    files: Sequence[Candidate],
    max_loss: float,
    limits: Budgets,
    measure: Measure,
) -> tuple[Candidate, ModelPrice] | None:
    """The cheapest on the board of the files that lose least, with its price.

    A byte of flash is worth as many ticks as at level ``time``. ``chosen`` is what there is without
    int4, None if that is over a budget. Others must be within ``limits``, and clearly better. A few
    of them are measured. None if there is no file.
    """
    priced = [] if chosen is None else [chosen]
    worst = None if chosen is None else max(chosen[0].loss, max_loss)
    allowed = [one for one in files if worst is None or one.loss <= worst]
    for place in places(len(allowed), MOST_MEASURED):
        price = measure(allowed[place - 1].result.data)
        if not limits.excess(price):
            priced.append((allowed[place - 1], price))

    def rank(one: tuple[Candidate, ModelPrice]) -> tuple[float, float]:
        file, price = one
        cost = price.ticks + FLASH_RATE * price.flash_bytes
        return max(file.loss, max_loss), cost if one is chosen else cost / CLEARLY_FASTER

    return min(priced, key=rank, default=None)
