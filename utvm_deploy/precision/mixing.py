"""Chooses int8 or int16x8 for each layer: the cheapest choice whose loss is small enough.

Layers are ordered by what int16 activations gain there for what they cost. Files with the first 0,
1, 2 ... of them in int16x8 are made and compared. So a loss is measured, and never estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.given_shapes import given_shapes
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.precision.facts import (
    DECIBELS,
    POINTS,
    Budgets,
    LayerSensitivity,
    Mixed,
    ModelPrice,
)
from utvm_deploy.precision.sensitivity import MOVERS, accuracy, outputs_db
from utvm_deploy.quantizing.child_steps import RecipeResult, quantize_with_recipes
from utvm_deploy.quantizing.facts import INT8, INT16X8, Calibration, Recipe

#: Files that are compared; a model with more layers gets larger steps.
MOST_FILES = 40
#: Files that are measured on the board after int8 and int16x8.
MOST_MEASURED = 6
#: Parts of int8's and int16x8's ticks that a mixed file must stay below where it loses no less.
#: A layer's ticks depend a little on where the linker puts its code.
_CLEARLY_FASTER = 0.99
#: An output without an error, in dB, so that it can be compared.
_PERFECT_DB = 200.0

#: A .tflite file -> what it takes on the board.
Measure = Callable[[bytes], ModelPrice]


@dataclass(frozen=True)
class _File:
    """One of the files that are compared."""

    wide: tuple[str, ...]
    recipe: Recipe
    result: RecipeResult
    loss: float


def mix(
    calibration: Calibration,
    labels: Array | None,
    rows: Sequence[LayerSensitivity],
    *,
    max_loss: float,
    budgets: Budgets,
    float_ends: bool = False,
    measure: Measure | None = None,
    prices: Mapping[str, ModelPrice] | None = None,
    progress: Progress = no_progress,
) -> tuple[Mixed, Recipe]:
    """The choice and its recipe.

    ``max_loss`` is in percentage points of accuracy below the float model with ``labels``, else in
    dB of SQNR below the int16x8 model. ``measure`` prices a file on the board; without it there are
    no budgets. ``prices`` are those of int8 and int16x8. Raises UtvmError if even the int8 model is
    over a budget.
    """
    prices = prices or {}
    order = [row.output for row in sorted(rows, key=_gain, reverse=True)]
    files, losses = _compared(calibration, labels, order, float_ends, progress)
    allowed = [one for one in files if one.loss <= max_loss]
    # Never worse than int8: the first file is int8 itself.
    chosen = allowed[0] if allowed else min(files, key=lambda one: (one.loss, len(one.wide)))
    price: ModelPrice | None = prices.get(INT8) if not chosen.wide else None
    if measure is not None:
        chosen, price = _within_budgets(files, chosen, max_loss, budgets, measure, prices)
    made = Mixed(
        chosen.wide,
        chosen.loss,
        DECIBELS if labels is None else POINTS,
        losses,
        price,
        prices,
        chosen.loss <= max_loss,
    )
    return made, chosen.recipe


def _gain(row: LayerSensitivity) -> float:
    """Noise that int16 activations remove, by the ticks that they cost."""
    noise = {
        scheme: 10 ** (-(_PERFECT_DB if value is None else value) / 10)
        for scheme, value in row.sqnr_db.items()
    }
    removed = max(noise[INT8] - noise[INT16X8], 0.0)
    if INT8 in row.prices and INT16X8 in row.prices:
        return removed / max(row.prices[INT16X8].ticks - row.prices[INT8].ticks, 1)
    return removed


def _compared(
    calibration: Calibration,
    labels: Array | None,
    order: Sequence[str],
    float_ends: bool,
    progress: Progress,
) -> tuple[list[_File], Mapping[str, float]]:
    """Files with more and more layers in int16x8, with their losses; those of both schemes."""
    step = max(1, -(-len(order) // MOST_FILES))
    counts = sorted({*range(0, len(order) + 1, step), len(order)})
    inputs = _inputs(calibration)
    recipes = [
        _recipe(calibration, frozenset(order[:count]), inputs, float_ends) for count in counts
    ]
    recipes.append(Recipe(INT16X8, float_ends=float_ends))
    results = quantize_with_recipes(calibration, recipes, is_exact=False, progress=progress)
    losses = _losses(calibration, labels, results)
    files = [
        _File(tuple(order[:count]), recipe, result, loss)
        for count, recipe, result, loss in zip(counts, recipes, results, losses, strict=False)
    ]
    # The last file is int16x8 as a whole: the widest choice.
    files[-1] = _File(tuple(order), recipes[-1], results[-1], losses[-1])
    return files, {INT8: losses[0], INT16X8: losses[-1]}


def _losses(
    calibration: Calibration, labels: Array | None, results: Sequence[RecipeResult]
) -> list[float]:
    if labels is not None:
        right = accuracy(calibration.outputs, labels)
        return [right - accuracy(one.outputs, labels) for one in results]
    found = [outputs_db(calibration, one) for one in results]
    known = [_PERFECT_DB if one is None else one for one in found]
    return [known[-1] - one for one in known]


def _inputs(calibration: Calibration) -> Mapping[str, tuple[str, ...]]:
    """Output of each operator -> the computed tensors that it reads."""
    with TemporaryFolder("utvm-mix") as folder:
        path = folder / "prepared.tflite"
        path.write_bytes(calibration.model)
        with given_shapes({}):  # the user's shapes are those of the float model
            graph = load_model(path)
    names = [tensor.name for tensor in graph.tensors]
    return {
        names[one.outputs[0]]: tuple(names[i] for i in one.inputs if i is not None)
        for one in graph.operators
    }


def _recipe(
    calibration: Calibration,
    wide: frozenset[str],
    inputs: Mapping[str, tuple[str, ...]],
    float_ends: bool,
) -> Recipe:
    """int8, but int16x8 for some operators, and for what only moves their results."""
    chosen = set(wide)
    for kind, output in calibration.operators:
        if kind in MOVERS and chosen.intersection(inputs.get(output, ())):
            chosen.add(output)
    return Recipe(INT8, operators=dict.fromkeys(sorted(chosen), INT16X8), float_ends=float_ends)


def _within_budgets(
    files: Sequence[_File],
    chosen: _File,
    max_loss: float,
    budgets: Budgets,
    measure: Measure,
    prices: Mapping[str, ModelPrice],
) -> tuple[_File, ModelPrice]:
    """The cheapest file among those that lose least, within the budgets, and its price.

    int8, int16x8, and the chosen file or one with fewer layers in int16x8 compete.
    """
    least, widest = prices[INT8], prices[INT16X8]
    if budgets.excess(least):
        raise UtvmError(
            f"even the int8 model is over a budget: {', '.join(budgets.excess(least))}; "
            "give more, or take a smaller model"
        )
    priced = [(files[0], least)]
    if not budgets.excess(widest):
        priced.append((files[-1], widest))
    for candidate in _fewer(files, files.index(chosen)):
        if candidate is files[0] or candidate is files[-1]:
            continue
        price = measure(candidate.result.data)
        if not budgets.excess(price):
            priced.append((candidate, price))
            break

    def rank(one: tuple[_File, ModelPrice]) -> tuple[float, float, int, int]:
        file, price = one
        is_pure = file is files[0] or file is files[-1]
        ticks = price.ticks if is_pure else price.ticks / _CLEARLY_FASTER
        # A loss that is smaller than it must be does not justify a higher price.
        return max(file.loss, max_loss), ticks, price.flash_bytes, price.ram_bytes

    return min(priced, key=rank)


def _fewer(files: Sequence[_File], place: int) -> Iterator[_File]:
    """The file at a place, and some with fewer layers in int16x8, down to int8."""
    places = [place]
    while places[-1] > 0 and len(places) < MOST_MEASURED:
        places.append(places[-1] * 2 // 3)
    return (files[one] for one in places)
