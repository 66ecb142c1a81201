"""All steps from a float model and samples to a file with a scheme for each layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import CYCLES
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.quality.evaluating.facts import CLASSIFICATION, Settings
from utvm_deploy.quality.evaluating.problem import problem_of
from utvm_deploy.quality.precision.facts import Budgets, LayerSensitivity, Mixed, ModelPrice
from utvm_deploy.quality.precision.mixing import mix
from utvm_deploy.quality.precision.prices import measure
from utvm_deploy.quality.precision.sensitivity import layer_sensitivities, layers_of, worst_layers
from utvm_deploy.quality.precision.summary import layers_json, mixed_json
from utvm_deploy.quality.quantizing import facts, model_steps
from utvm_deploy.quality.quantizing.child_steps import TFLITE
from utvm_deploy.quality.quantizing.samples import dataset_for

#: Samples with labels that accuracies are of: 0.4 percentage points each.
LABELLED_SAMPLES = 256
#: A model with more layers takes minutes to try one by one, so only --sensitivity does that.
MOST_TRIED_LAYERS = 64
#: What may be lost where nobody says: percentage points with labels, dB without.
DEFAULT_MAX_LOSS = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedWithLayers(facts.QuantizedModel):
    """A quantized file with the table of layers that ``sensitivity`` asks for."""

    layers: tuple[LayerSensitivity, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm quantize --sensitivity --json``, without an output."""
        more = {"layers": layers_json(self.layers)}
        return plain_object("utvm.quantize/1", {**super().to_dict(), **more})


@dataclass(frozen=True, eq=False, repr=False)
class MixedModel(QuantizedWithLayers):
    """A file with a scheme for each layer, the table that it was chosen by, and the choice."""

    mixed: Mixed = field(kw_only=True)
    max_loss: float = DEFAULT_MAX_LOSS  # that was allowed, in ``mixed.loss_unit``

    @property
    def rows(self) -> tuple[LayerSensitivity, ...]:
        """The table of layers."""
        return self.layers

    @property
    def headline(self) -> str:
        """How many layers are int16x8 and int4, and what the choice loses."""
        mixed = self.mixed
        return (
            f"{super().headline}; {len(mixed.wide)} of {len(self.layers)} layers int16x8, "
            f"{len(mixed.narrow)} int4, loss {mixed.loss:.3g} {mixed.loss_unit}"
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer: its scheme, and the SQNR in dB with this layer alone quantized."""
        return [
            {
                "index": row.index,
                "operator": row.kind,
                "output": row.output,
                "scheme": self.mixed.scheme_of(row.output),
                **{f"sqnr_db_{scheme}": value for scheme, value in row.sqnr_db.items()},
            }
            for row in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm quantize --scheme mixed --json``, without an output."""
        more = {"mixed": mixed_json(self.mixed, self.max_loss)}
        return plain_object("utvm.quantize/1", {**super().to_dict(), **more})


@dataclass(frozen=True)
class Sensitivities:
    """The table of layers, and what it was made of."""

    rows: tuple[LayerSensitivity, ...]
    calibration: facts.Calibration
    float_bytes: int
    labels: Any  # classes of the compared samples; None without labels
    prices: dict[str, ModelPrice]  # by scheme; empty without a board


def sensitivities(
    path: Path,
    data: Any,
    *,
    board: Board | None = None,
    timing: str = CYCLES,
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    progress: Progress = no_progress,
) -> Sensitivities:
    """What quantizing each layer alone costs; with a board, what it takes there, too.

    An ONNX or a PyTorch file becomes a float .tflite file first: the layers are those of that file.
    Raises ModelError naming the operators that .tflite files have no form of.
    """
    source = model_steps.opened(path, is_converted=True, progress=progress)
    labels = _labels(source, data)
    count = facts.COMPARED_SAMPLES if labels is None else LABELLED_SAMPLES
    calibration = model_steps.calibrated(
        source, data, input_range=input_range, compared=count, progress=progress
    )
    kept = None if labels is None else labels[: len(calibration.outputs[0])]
    prices: dict[str, ModelPrice] = {}
    if board is not None:
        for scheme in facts.UNIFORM_SCHEMES:
            recipe = facts.Recipe.of(scheme, float_ends=float_ends)
            made = model_steps.quantize_with_recipe(calibration, recipe, name=path.stem)
            prices[scheme] = measure(made.data, board, timing=timing, progress=progress)
    tables = {scheme: price.layers for scheme, price in prices.items()}
    rows = layer_sensitivities(calibration, kept, tables, progress=progress)
    return Sensitivities(rows, calibration, source.size, kept, prices)


def name_costly_layers(
    made: facts.QuantizedModel,
    path: Path,
    data: Any,
    *,
    rows: Sequence[LayerSensitivity] = (),
    wide: Collection[str] = (),
    progress: Progress = no_progress,
) -> facts.QuantizedModel:
    """Let each warning of a bad output name the layers that cost most.

    ``rows`` is the table of layers, if there is one, and ``wide`` are outputs that are int16x8 in
    a mixed model. Without ``rows``, each layer is quantized alone, unless the model has too many.
    """
    if not any(facts.SENSITIVITY_HINT in one for one in made.warnings):
        return made
    rows = rows or _rows_of(made, path, data, progress)
    if not rows:
        return made
    told = worst_layers(rows, made.scheme, wide)
    warnings = tuple(one.replace(facts.SENSITIVITY_HINT, told) for one in made.warnings)
    return replace(made, warnings=warnings)


def _rows_of(
    made: facts.QuantizedModel, path: Path, data: Any, progress: Progress
) -> Sequence[LayerSensitivity]:
    calibration = made.calibration
    if calibration.form != TFLITE:
        try:
            source = model_steps.opened(path, is_converted=True, progress=progress)
            calibration = model_steps.calibrated(source, data, progress=progress)
        except ModelError:
            return ()  # an operator has no form in .tflite files
    if len(layers_of(calibration)) > MOST_TRIED_LAYERS:
        return ()
    return layer_sensitivities(calibration, None, {}, schemes=[made.scheme], progress=progress)


def _labels(source: model_steps.Source, data: Any) -> Any:
    """The classes of the samples, where the first output has a score for each class; else None.

    Raises DataError for labels that do not fit the output.
    """
    samples = dataset_for(data, source.inputs)
    graph = load_bytes(source.data, source.path.stem, str(source.path))
    output = graph.tensors[graph.outputs[0]]
    if sum(extent > 1 for extent in output.shape) > 1:
        return None  # an image, for example: a label does not say what is right
    problem = problem_of(graph, samples, Settings(), source.path)
    return problem.labels if problem.task == CLASSIFICATION and samples.groups is None else None


def quantize_uniform(
    path: Path,
    data: Any,
    *,
    scheme: str = facts.INT8,
    clipping: str = facts.MIN_MAX,
    equalize: str = facts.AUTO,
    sensitivity: bool = False,
    board: Board | None = None,
    timing: str = CYCLES,
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    progress: Progress = no_progress,
) -> facts.QuantizedModel:
    """Quantize a float model file, all layers to one scheme.

    With ``sensitivity``, the result is a ``QuantizedWithLayers``; ``board`` is for that only.
    Raises ModelError if the file or the data cannot be used.
    """
    same: dict[str, Any] = {
        "float_ends": float_ends,
        "input_range": input_range,
        "progress": progress,
    }
    rows: tuple[LayerSensitivity, ...] = ()
    if sensitivity:
        rows = sensitivities(path, data, board=board, timing=timing, **same).rows
    made = model_steps.quantize_model(
        path, data, scheme=scheme, clipping=clipping, equalize=equalize, **same
    )
    made = name_costly_layers(made, path, data, rows=rows, progress=progress)
    if not sensitivity:
        return made
    return QuantizedWithLayers(**vars(made), layers=rows)


def quantize_mixed(
    path: Path,
    data: Any,
    *,
    max_loss: float = DEFAULT_MAX_LOSS,
    board: Board | None = None,
    timing: str = CYCLES,
    budgets: Budgets | None = None,
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    progress: Progress = no_progress,
) -> MixedModel:
    """Quantize a float model file, each layer to int4, int8 or int16x8.

    ``max_loss`` is in percentage points of accuracy below the float model if the data have labels,
    else in dB of SQNR below the int16x8 model. ``budgets`` need a board. Raises UtvmError if no
    choice that was measured is within them.
    """
    budgets = budgets or Budgets()
    if budgets.are_set and board is None:
        raise UsageError("a budget is measured on a board; give board=, too")
    found = sensitivities(
        path,
        data,
        board=board,
        timing=timing,
        float_ends=float_ends,
        input_range=input_range,
        progress=progress,
    )
    mixed, recipe = mix(
        found.calibration,
        found.labels,
        found.rows,
        max_loss=max_loss,
        budgets=budgets,
        float_ends=float_ends,
        measure=None
        if board is None
        else partial(measure, board=board, timing=timing, progress=progress),
        prices=found.prices,
        progress=progress,
    )
    made = model_steps.quantize_with_recipe(
        found.calibration, recipe, name=path.stem, float_bytes=found.float_bytes
    )
    named = name_costly_layers(
        replace(made, scheme="mixed"), path, data, rows=found.rows, wide=mixed.wide
    )
    return MixedModel(**vars(named), layers=found.rows, mixed=mixed, max_loss=max_loss)
