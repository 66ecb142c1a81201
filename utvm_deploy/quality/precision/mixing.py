"""Chooses a scheme for each layer: the cheapest choice whose loss is small enough.

Layers are ordered by what int16 activations gain there for what they cost. Files with the first 0,
1, 2 ... of them in int16x8 are made and compared. So a loss is measured, and never estimated. Then
some of the others get weights of int4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.quality.precision import facts
from utvm_deploy.quality.precision.affording import (
    Afforded,
    Candidate,
    Measure,
    affordable,
    limits_of,
)
from utvm_deploy.quality.precision.narrowing import (
    cheapest,
    narrowed,
    narrowing_order,
    smallest,
)
from utvm_deploy.quality.precision.sensitivity import (
    MOVERS,
    WITH_WEIGHTS,
    accuracy,
    noise,
    outputs_db,
)
from utvm_deploy.quality.quantizing.child_steps import RecipeResult, quantize_with_recipes
from utvm_deploy.quality.quantizing.facts import INT4, INT8, INT16X8, Calibration, Recipe

#: Files that are compared; a model with more layers gets larger steps.
MOST_FILES = 40
#: An output without an error, in dB, so that it can be compared.
_PERFECT_DB = 200.0


def mix(
    calibration: Calibration,
    labels: Array | None,
    rows: Sequence[facts.LayerSensitivity],
    *,
    max_loss: float,
    budgets: facts.Budgets,
    float_ends: bool = False,
    measure: Measure | None = None,
    prices: Mapping[str, facts.ModelPrice] | None = None,
    progress: Progress = no_progress,
) -> tuple[facts.Mixed, Recipe]:
    """The choice and its recipe.

    ``max_loss`` is in percentage points of accuracy below the float model with ``labels``, else in
    dB of SQNR below the int16x8 model. ``measure`` prices a file on the board; without it there are
    no budgets. ``prices`` are those of the schemes for all layers.

    The choice loses at most what int8 loses, or ``max_loss``; more only where int8 is over a
    budget. With ``measure``, and without a budget of flash, its file is at most as large as that of
    int8 or of int16x8. ``affordable`` and ``cheapest`` say what else holds on a board. Raises
    UtvmError if no choice that was measured is within the budgets.
    """
    prices = prices or {}
    order = [row.output for row in sorted(rows, key=_gain, reverse=True)]
    graph = _graph(calibration)
    files, losses = _compared(calibration, labels, order, graph, float_ends, progress)
    worst_file = files[-1].result

    def make(recipes: Sequence[Recipe]) -> Sequence[tuple[RecipeResult, float]]:
        results = quantize_with_recipes(calibration, recipes, is_exact=False, progress=progress)
        found = _losses(calibration, labels, [*results, worst_file])
        return tuple(zip(results, found, strict=False))

    if measure is not None and budgets.flash is None:
        most = max(files[0].size, files[-1].size)
        files = [one for one in files if one.size <= most]
    allowed = [one for one in files if one.loss <= max_loss]
    # Never worse than int8: the first file is int8 itself.
    chosen = allowed[0] if allowed else min(files, key=lambda one: (one.loss, len(one.wide)))

    def narrow(base: Candidate) -> list[Candidate]:
        return narrowed(base, narrowing_order(rows, _elements(graph)), make, MOST_FILES)

    price: facts.ModelPrice | None = None
    dearer: facts.ModelPrice | None = None
    if measure is None:
        chosen = smallest(chosen, narrow(chosen), max_loss)
    else:
        found = _on_board(files, chosen, max_loss, budgets, measure, prices, narrow)
        chosen, price, dearer = found.file, found.price, found.dearer
    made = facts.Mixed(
        chosen.wide,
        chosen.loss,
        facts.DECIBELS if labels is None else facts.POINTS,
        losses,
        price,
        prices,
        chosen.loss <= max_loss,
        dearer,
        chosen.narrow,
    )
    return made, chosen.recipe


def _on_board(
    files: Sequence[Candidate],
    chosen: Candidate,
    max_loss: float,
    budgets: facts.Budgets,
    measure: Measure,
    prices: Mapping[str, facts.ModelPrice],
    narrow: Callable[[Candidate], list[Candidate]],
) -> Afforded:
    """The cheapest of ``files``, and of what ``narrow`` makes of it and of the chosen one."""
    found = affordable(files, chosen, max_loss, budgets, measure, prices)
    first, best, limits = files[0], None, budgets
    if found is not None:
        first, best = found.file, (found.file, found.price)
        limits = limits_of(budgets, prices[INT8], prices[INT16X8])
    for base in (first,) if chosen is first else (first, chosen):
        best = cheapest(best, narrow(base), max_loss, limits, measure)
    if best is None:
        scheme = INT4 if INT4 in prices else INT8
        over = ", ".join(budgets.excess(prices[scheme])) or ", ".join(budgets.excess(prices[INT8]))
        raise UtvmError(
            f"even the {scheme} model is over a budget: {over}; give more, or take a smaller model"
        )
    is_same = found is not None and best[0] is found.file
    return Afforded(*best, found.dearer if found is not None and is_same else None)


def _gain(row: facts.LayerSensitivity) -> float:
    """Noise that int16 activations remove, by the ticks that they cost."""
    removed = max(noise(row.sqnr_db[INT8]) - noise(row.sqnr_db[INT16X8]), 0.0)
    if INT8 in row.prices and INT16X8 in row.prices:
        return removed / max(row.prices[INT16X8].ticks - row.prices[INT8].ticks, 1)
    return removed


def _compared(
    calibration: Calibration,
    labels: Array | None,
    order: Sequence[str],
    graph: Graph,
    float_ends: bool,
    progress: Progress,
) -> tuple[list[Candidate], Mapping[str, float]]:
    """Files with more and more layers in int16x8, with their losses; those of all schemes."""
    step = max(1, -(-len(order) // MOST_FILES))
    counts = sorted({*range(0, len(order) + 1, step), len(order)})
    inputs = _inputs(graph)
    recipes = [
        _recipe(calibration, frozenset(order[:count]), inputs, float_ends) for count in counts
    ]
    recipes += [Recipe.of(scheme, float_ends=float_ends) for scheme in (INT4, INT16X8)]
    results = quantize_with_recipes(calibration, recipes, is_exact=False, progress=progress)
    losses = _losses(calibration, labels, results)
    files = [
        Candidate(tuple(order[:count]), recipe, result, loss)
        for count, recipe, result, loss in zip(counts, recipes, results, losses, strict=False)
    ]
    # The last file is int16x8 as a whole: the widest choice.
    files[-1] = Candidate(tuple(order), recipes[-1], results[-1], losses[-1])
    return files, {INT8: losses[0], INT4: losses[-2], INT16X8: losses[-1]}


def _losses(
    calibration: Calibration, labels: Array | None, results: Sequence[RecipeResult]
) -> list[float]:
    if labels is not None:
        right = accuracy(calibration.outputs, labels)
        return [right - accuracy(one.outputs, labels) for one in results]
    found = [outputs_db(calibration, one) for one in results]
    known = [_PERFECT_DB if one is None else one for one in found]
    return [known[-1] - one for one in known]


def _graph(calibration: Calibration) -> Graph:
    """The float model, as it was calibrated."""
    with TemporaryFolder("utvm-mix") as folder:
        path = folder / "prepared.tflite"
        path.write_bytes(calibration.model)
        with given_only(Chosen()):  # the user's shapes are those of the float model
            return load_model(path)


def _inputs(graph: Graph) -> Mapping[str, tuple[str, ...]]:
    """Output of each operator -> the computed tensors that it reads."""
    names = [tensor.name for tensor in graph.tensors]
    return {
        names[one.outputs[0]]: tuple(names[i] for i in one.inputs if i is not None)
        for one in graph.operators
    }


def _elements(graph: Graph) -> Mapping[str, int]:
    """Output of each layer -> the elements of its weights."""
    return {
        graph.tensors[one.outputs[0]].name: math.prod(graph.tensors[one.inputs[1]].shape)
        for one in graph.operators
        if one.kind in WITH_WEIGHTS and one.inputs[1] is not None
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
