"""What quantizing one operator alone costs, while everything else stays float."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.evaluating.facts import Settings
from utvm_deploy.quality.precision.facts import LayerPrice, LayerSensitivity
from utvm_deploy.quality.quantizing.child_steps import RecipeResult, quantize_with_recipes
from utvm_deploy.quality.quantizing.facts import (
    FLOAT,
    INT4,
    INT8,
    INT16X8,
    UNIFORM_SCHEMES,
    Calibration,
    Recipe,
)
from utvm_deploy.quality.quantizing.sqnr import sqnr_db
from utvm_deploy.quality.quantizing.tflite.layers import CONV, DENSE, DEPTHWISE

#: Layers that a warning names.
_MOST_WORST = 3
#: Operators that only move elements: they have the scheme of what made their input.
MOVERS = frozenset(
    (
        *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE", "EXPAND_DIMS"),
        *("GATHER", "GATHER_ND", "MAX_POOL_2D", "MIRROR_PAD", "PACK", "PAD", "PADV2", "RESHAPE"),
        *("REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V"),
        *("SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
    )
)
#: Operators whose weights can be int4.
WITH_WEIGHTS = frozenset((CONV, DEPTHWISE, DENSE))


def layers_of(calibration: Calibration) -> tuple[tuple[int, str, str], ...]:
    """Position, kind and output of each operator that computes."""
    return tuple(
        (index, kind, output)
        for index, (kind, output) in enumerate(calibration.operators)
        if kind not in MOVERS
    )


def layer_sensitivities(
    calibration: Calibration,
    labels: Array | None,
    prices: Mapping[str, Mapping[str, LayerPrice]],
    *,
    schemes: Sequence[str] = UNIFORM_SCHEMES,
    progress: Progress = no_progress,
) -> tuple[LayerSensitivity, ...]:
    """A row for each operator that computes, in the order of the model.

    ``labels`` are the classes of the calibration's samples. ``prices`` maps schemes to the prices
    of layers, by output. Each operator is tried in each of ``schemes``, but int4 with int8 only
    where there are weights.
    """
    layers = layers_of(calibration)
    tried = [
        (output, scheme)
        for scheme in schemes
        for _, kind, output in layers
        if scheme != INT4 or INT8 not in schemes or kind in WITH_WEIGHTS
    ]
    recipes = [alone(calibration, *one) for one in tried]
    made_all = quantize_with_recipes(calibration, recipes, is_exact=False, progress=progress)
    results = dict(zip(tried, made_all, strict=True))
    right = None if labels is None else accuracy(calibration.outputs, labels)
    rows = []
    for index, kind, output in layers:
        made = {s: results[output, s] for s in schemes if (output, s) in results}
        points = None
        if labels is not None and right is not None:
            points = {scheme: right - accuracy(one.outputs, labels) for scheme, one in made.items()}
        decibels = {scheme: outputs_db(calibration, one) for scheme, one in made.items()}
        known = {scheme: table[output] for scheme, table in prices.items() if output in table}
        rows.append(LayerSensitivity(index, kind, output, decibels, points, known))
    return tuple(rows)


def worst_layers(rows: Sequence[LayerSensitivity], scheme: str, wide: Collection[str] = ()) -> str:
    """The layers that cost most, for a warning that an output is bad.

    ``wide`` has the outputs of those that are int16x8 in a mixed model.
    """

    def cost(row: LayerSensitivity) -> float:
        own = scheme if scheme in row.sqnr_db else INT8
        found = row.sqnr_db[INT16X8 if row.output in wide else own]
        return math.inf if found is None else found

    worst = sorted(rows, key=cost)[:_MOST_WORST]
    told = ", ".join(f"{row.index} ({row.kind}, {cost(row):.1f} dB)" for row in worst)
    return f"of single operators, these cost most: {told}"


def alone(calibration: Calibration, output: str, scheme: str) -> Recipe:
    """The recipe that quantizes one operator and leaves the others float."""
    others = {name: FLOAT for _, name in calibration.operators if name != output}
    return Recipe.of(scheme, operators=others, float_ends=True)


def outputs_db(calibration: Calibration, result: RecipeResult) -> float | None:
    """SQNR of all outputs together, each by its own power: that of the worst."""
    found = [
        one
        for real, made in zip(calibration.outputs, result.outputs, strict=True)
        if (one := sqnr_db(real, made)) is not None
    ]
    return min(found) if found else None


def noise(sqnr: float | None) -> float:
    """The power of the error, as a part of the signal's, for an SQNR in dB; None has none."""
    return 0.0 if sqnr is None else 10 ** (-sqnr / 10)


def accuracy(outputs: Sequence[Array], labels: Array) -> float:
    """Percentage of samples whose class by the first output is their label."""
    scores = np.asarray(outputs[0], np.float32).reshape(len(outputs[0]), -1)
    is_binary = scores.shape[1] == 1
    found = scores[:, 0] >= Settings.threshold if is_binary else scores.argmax(axis=1)
    return 100.0 * float(np.mean(found == labels))
