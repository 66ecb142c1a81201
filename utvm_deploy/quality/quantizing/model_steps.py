"""All steps from a float model and samples to a checked quantized file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.files.state import KeptState
from utvm_deploy.frontend.formats import check_known, check_shapes_apply, model_bytes
from utvm_deploy.frontend.tflite import load_bytes, load_model, tflite_bytes
from utvm_deploy.graph.check import works_in_float
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.datasets import ModelInput
from utvm_deploy.quality.quantizing import child_steps, facts
from utvm_deploy.quality.quantizing.choosing import Score, clearly_better, score
from utvm_deploy.quality.quantizing.samples import dataset_for
from utvm_deploy.quality.quantizing.sqnr import outlier, output_errors
from utvm_deploy.quality.quantizing.stepping import stepped


def quantize_model(
    path: Path,
    data: Any,
    *,
    scheme: str = facts.INT8,
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    clipping: str = facts.MIN_MAX,
    equalize: str = facts.AUTO,
    progress: Progress = no_progress,
) -> facts.QuantizedModel:
    """Quantize a float model file. Raises ModelError if the file or the data cannot be used."""
    for given, known, what in (
        (scheme, facts.WANTED_SCHEMES, "scheme"),
        (clipping, facts.WANTED_CLIPPINGS, "clipping"),
        (equalize, facts.WANTED_EQUALIZING, "value of equalize"),
    ):
        if given not in known:
            raise UsageError(f"{given!r} is not a {what}; there are {', '.join(known)}")
    source = _source(path, clipping, equalize, scheme, progress)
    data = source.stepped(data, progress)
    calibration = calibrated(source, data, input_range=input_range, progress=progress)
    usual = facts.Recipe.of(
        scheme,
        float_ends=float_ends,
        clipping=facts.MIN_MAX if clipping == facts.AUTO else clipping,
    )
    is_free = clipping in (facts.AUTO, facts.MIN_MAX) and equalize != facts.YES
    is_free = is_free and scheme != facts.INT4
    is_compared = calibration.source is not None and is_free
    trial = _Trial(calibration, usual, is_compared, progress)
    try:
        is_tried = equalize == facts.YES or (equalize == facts.AUTO and calibration.held_out > 0)
        if is_tried and calibration.form == child_steps.TFLITE:
            trial.equalize(source, data, input_range)
        if clipping == facts.AUTO:
            trial.clip()
        # The file's own quantizer knows the observed ranges only.
        if is_compared and calibration.source is not None:
            trial.compare_with_source(calibration.source)
        made = quantize_with_recipe(
            trial.calibration,
            trial.recipe,
            name=path.stem,
            float_bytes=source.size,
            progress=progress,
        )
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    return replace(
        made,
        clippings=trial.clippings,
        equalizing=trial.equalizing,
        converting=trial.converting,
    )


def _source(path: Path, clipping: str, equalize: str, scheme: str, progress: Progress) -> Source:
    """The file, as a float .tflite file if it must be quantized as one."""
    is_torch = path.suffix.lower() == f".{child_steps.TORCH}"
    # PT2E knows one way to ranges. Weights are equalized, and become int4, in .tflite files.
    is_needed = equalize == facts.YES or scheme == facts.INT4
    is_needed = is_needed or (is_torch and clipping in (facts.PERCENTILE, facts.MSE))
    if is_needed or not is_torch or facts.AUTO not in (clipping, equalize):
        return opened(path, is_converted=is_needed, progress=progress)
    try:
        return opened(path, is_converted=True, progress=progress)
    except ModelError as error:
        source = opened(path, progress=progress)
        told = str(error).removeprefix(f"{path}: ")
        note = f"quantized by PT2E only, because it did not become a .tflite file: {told}"
        return replace(source, notes=(*source.notes, note))


class _Trial:
    """The way to quantize a model that is best so far, and what the others gave, in dB."""

    def __init__(
        self,
        calibration: facts.Calibration,
        recipe: facts.Recipe,
        is_compared_with_source: bool,
        progress: Progress,
    ) -> None:
        self.calibration, self.recipe, self._progress = calibration, recipe, progress
        self.clippings: dict[str, float | None] = {}
        self.equalizing: tuple[float | None, float | None] | None = None
        self.converting: tuple[float | None, float | None] | None = None
        self._score: Score | None = None
        self._is_compared_with_source = is_compared_with_source

    @property
    def score(self) -> Score:
        """The score of the best way so far."""
        if self._score is None:
            (self._score,) = self._scores(self.calibration, [self.recipe])
        return self._score

    def equalize(self, source: Source, data: Any, input_range: tuple[float, float] | None) -> None:
        """Try weights that are equalized across layers."""
        other = equalized(
            source, data, self.calibration, input_range=input_range, progress=self._progress
        )
        if not other.equalized:
            return
        if self._is_compared_with_source:
            self.calibration = other  # one comparison is enough
            return
        before = self.score
        (behind,) = self._scores(other, [self.recipe])
        self.equalizing = before.db, behind.db
        if behind.is_clearly_better(before):
            self.calibration, self._score = other, behind

    def clip(self) -> None:
        """Try the other ways to ranges."""
        recipes = {one: replace(self.recipe, clipping=one) for one in facts.CLIPPINGS}
        usual, *others = recipes.values()
        scores = (self.score, *self._scores(self.calibration, others))
        tried = dict(zip(recipes, scores, strict=True))
        self.clippings = {name: one.db for name, one in tried.items()}
        ways = [usual.clipping, *clearly_better(tried, usual.clipping)]
        if len(ways) > 1 and self.calibration.held_out:
            # A few large values decide, and the samples that are held out may have none.
            everything = self.calibration.of_all_samples()
            judged = self._scores(everything, [recipes[name] for name in ways])
            ways = [
                name for name, one in zip(ways, judged, strict=True) if one.size >= judged[0].size
            ]
        chosen = max(ways, key=lambda name: tried[name].size)
        self.recipe, self._score = recipes[chosen], tried[chosen]

    def compare_with_source(self, source: facts.Calibration) -> None:
        """Let the file's own quantizer make the model, unless this way is clearly better."""
        recipe = replace(self.recipe, clipping=facts.MIN_MAX)
        if not source.held_out and not self.clippings:
            self.calibration, self.recipe, self._score = source, recipe, None
            return
        (own,) = self._scores(source, [recipe])
        self.converting = own.db, self.score.db
        if not self.score.is_clearly_better(own):
            self.calibration, self.recipe, self._score = source, recipe, own

    def _scores(
        self, calibration: facts.Calibration, recipes: Sequence[facts.Recipe]
    ) -> list[Score]:
        results = child_steps.quantize_with_recipes(
            calibration, recipes, is_exact=False, progress=self._progress
        )
        return [score(calibration, result) for result in results]


@dataclass(frozen=True, eq=False)
class Source:
    """A float model file as it is calibrated."""

    path: Path
    form: str
    data: bytes
    inputs: child_steps.Inputs
    size: int  # of the file
    # Before it became a .tflite file: its format, and what ``prepare`` made of it.
    original: tuple[str, bytes] | None = None
    # Messages for the user, such as a batch that was bound to 1.
    notes: tuple[str, ...] = ()
    states: tuple[KeptState, ...] = ()  # what its buffers are

    def stepped(self, data: Any, progress: Progress) -> Any:
        """The data, with what states hold there if they have no values of these."""
        form, model = self.original or (self.form, self.data)
        return stepped(form, model, self.inputs, self.states, data, progress)


def opened(path: Path, *, is_converted: bool = False, progress: Progress = no_progress) -> Source:
    """A float model file, ready to be calibrated.

    With ``is_converted``, models of other formats become float .tflite files first, whose layers
    can be quantized one by one. Raises ModelError if the file cannot be used.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in (child_steps.TFLITE, child_steps.ONNX, child_steps.TORCH):
        check_known(path)
        raise ModelError(f"{path} cannot be quantized; give a float .tflite, .onnx or .pt2 file")
    check_shapes_apply(path)
    file = tflite_bytes(path) if form == child_steps.TFLITE else model_bytes(path)
    child_steps.check_installed(form)
    if is_converted:
        child_steps.check_installed(child_steps.TFLITE)
    if form == child_steps.TFLITE:
        return _opened_tflite(path, file)
    try:
        made = child_steps.prepare(form, file, is_converted=is_converted, progress=progress)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    original, data = None, made.data
    if is_converted:
        original = form, made.data
        data, form = made.converted, child_steps.TFLITE
    return Source(path, form, data, made.inputs, len(file), original, made.notes, made.states)


def _opened_tflite(path: Path, file: bytes) -> Source:
    try:
        # The quantizer refuses weights that are not finite.
        graph = load_model(path, is_quiet=True)
        return Source(path, child_steps.TFLITE, file, float_inputs(path, graph), len(file))
    except UnsupportedOperator as refusal:
        try:
            made = child_steps.float_weights(file)
        except ModelError:
            raise refusal from None
    inputs = float_inputs(path, load_bytes(made, path.stem, str(path)))
    note = (
        f"{path.name} has int8 weights already, which are rounded again; its float model may give "
        "smaller errors"
    )
    return Source(path, child_steps.TFLITE, made, inputs, len(file), notes=(note,))


def refusal_of(path: Path) -> str | None:
    """Why a float .onnx or .pt2 file cannot be quantized; None if it can be, as far as is known.

    Nothing is known where the packages are missing that quantize it.
    """
    form = path.suffix.lower().removeprefix(".")
    try:
        child_steps.check_installed(form)
    except ModelError:
        return None
    try:
        child_steps.prepare(form, model_bytes(path), is_converted=True)
    except ModelError as error:
        return str(error)
    return None


def calibrated(
    source: Source,
    data: Any,
    *,
    input_range: tuple[float, float] | None = None,
    compared: int = facts.COMPARED_SAMPLES,
    progress: Progress = no_progress,
) -> facts.Calibration:
    """The calibration of a float model.

    Quantized models are compared on the first ``compared`` samples, with what the float model of
    the file makes of them.
    """
    data = source.stepped(data, progress)
    run = partial(_run, source, data, input_range, compared, progress)
    made = run(source.form, source.data)
    made = replace(made, warnings=(*source.notes, *made.warnings))
    if source.original is None:
        return made
    real = replace(run(*source.original), warnings=made.warnings)
    return replace(
        made,
        outputs=real.outputs,
        output_names=real.output_names,
        source=real,
        all_outputs=real.all_outputs,
    )


def equalized(
    source: Source,
    data: Any,
    calibration: facts.Calibration,
    *,
    input_range: tuple[float, float] | None = None,
    progress: Progress = no_progress,
) -> facts.Calibration:
    """The calibration of the same model with equalized weights."""
    run = partial(_run, source, data, input_range, facts.COMPARED_SAMPLES, progress)
    made = run(source.form, source.data, equalize=True)
    return replace(
        made,
        outputs=calibration.outputs,
        output_names=calibration.output_names,
        warnings=calibration.warnings,
        source=calibration.source,
        all_outputs=calibration.all_outputs,
    )


def _run(
    source: Source,
    data: Any,
    input_range: tuple[float, float] | None,
    compared: int,
    progress: Progress,
    form: str,
    model: bytes,
    *,
    equalize: bool = False,
) -> facts.Calibration:
    try:
        made = child_steps.calibrate(
            form,
            model,
            dataset_for(data, source.inputs),
            source.inputs,
            declared=facts.declared_range(input_range),
            compared=compared,
            equalize=equalize,
            progress=progress,
        )
        return replace(made, states=source.states)
    except ModelError as error:
        raise ModelError(f"{source.path}: {error}") from error


def float_inputs(path: Path, graph: Graph) -> tuple[ModelInput, ...]:
    """The inputs of a float model; ModelError if it is quantized already."""
    for tensor in graph.tensors:
        if tensor.quantization is not None:
            raise ModelError(
                f"{path} is quantized already: '{short_name(tensor.name)}' has a scale; give the "
                "float model that it was made of"
            )
    return tuple(ModelInput.of(graph.tensors[number]) for number in graph.inputs)


def quantize_with_recipe(
    calibration: facts.Calibration,
    recipe: facts.Recipe,
    *,
    name: str = "model",
    float_bytes: int | None = None,
    progress: Progress = no_progress,
) -> facts.QuantizedModel:
    """The file that a recipe describes, read back and compared with the float model."""
    if recipe.scheme not in facts.SCHEMES:
        known = ", ".join(facts.UNIFORM_SCHEMES)
        raise UsageError(f"{recipe.scheme!r} is not a scheme; the schemes: {known}")
    (result,) = child_steps.quantize_with_recipes(
        calibration, [recipe], is_final=True, progress=progress
    )
    made, states = result.data, calibration.states
    if states:
        from utvm_deploy.frontend.files.tflite_states import with_kept_states

        made = with_kept_states(made, states)
    graph = _read_back(made, name)
    # States are outputs behind those of the model.
    shown = slice(len(calibration.output_names) - len(states))
    names = [short_name(one) for one in calibration.output_names[shown]]
    real, theirs = calibration.outputs[shown], result.outputs[shown]
    outputs = tuple(output_errors(names, real, theirs))
    return facts.QuantizedModel(
        made,
        recipe.label,
        calibration,
        tuple(float_operators(graph)),
        tuple(kind for kind, _ in result.rewritten),
        outputs,
        len(calibration.outputs[0]),
        len(calibration.model) if float_bytes is None else float_bytes,
        (
            *calibration.warnings,
            *_large_errors(outputs, recipe.label),
            *_outliers(outputs, recipe.label, calibration, theirs),
        ),
        recipe.clipping,
    )


def _large_errors(outputs: Sequence[facts.OutputError], scheme: str) -> Iterator[str]:
    least = facts.LEAST_SQNR_DB[scheme]
    for one in outputs:
        if one.sqnr_db is not None and one.sqnr_db < least:
            yield (
                f"output {one.name!r} has an SQNR of {one.sqnr_db:.1f} dB, below {least:g} dB; "
                f"{facts.SENSITIVITY_HINT}"
            )


def _outliers(
    outputs: Sequence[facts.OutputError],
    scheme: str,
    calibration: facts.Calibration,
    made: Sequence[Array],
) -> Iterator[str]:
    least = facts.LEAST_SQNR_DB[scheme]
    for one, real, quantized in zip(outputs, calibration.outputs, made, strict=False):
        found = outlier(real, quantized)
        if found is None or found[1] >= least or (one.sqnr_db or 0.0) < least:
            continue
        number, middle = found
        reach = max(float(np.abs(values[number]).max()) for values in calibration.inputs)
        yield (
            f"compared sample {number} (inputs up to {reach:g}) makes the SQNR of output "
            f"{one.name!r}; the middle sample has {middle:.1f} dB, below {least:g} dB; leave "
            "outliers out"
        )


def float_operators(graph: Graph) -> Sequence[facts.FloatOperator]:
    """The operators of a quantized model that compute in float32."""
    return [
        facts.FloatOperator(
            one.sources[0], one.kind, short_name(graph.tensors[one.outputs[0]].name)
        )
        for one in graph.operators
        if works_in_float(graph, one)
    ]


def _read_back(made: bytes, name: str) -> Graph:
    """The graph of a file that was made; ModelError if it cannot be imported."""
    # The user's shapes are those of the float model.
    with TemporaryFolder("utvm-quantized") as folder, given_only(Chosen()):
        path = folder / f"{name}.tflite"
        path.write_bytes(made)
        try:
            return load_model(path)
        except ModelError as error:
            text = str(error).removeprefix(f"{path}: ")
            raise ModelError(f"the quantized model cannot be compiled: {text}") from error
