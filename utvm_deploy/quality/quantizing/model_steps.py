"""All steps from a float model and samples to a checked quantized file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import given_shapes
from utvm_deploy.frontend.formats import check_known, check_shapes_apply, model_bytes
from utvm_deploy.frontend.tflite import load_bytes, load_model, tflite_bytes
from utvm_deploy.graph.check import works_in_float
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.datasets import ModelInput
from utvm_deploy.quality.quantizing import child_steps, facts
from utvm_deploy.quality.quantizing.choosing import Score, best, score
from utvm_deploy.quality.quantizing.samples import dataset_for
from utvm_deploy.quality.quantizing.sqnr import output_errors


def quantize_model(
    path: Path,
    data: Any,
    *,
    scheme: str = facts.INT8,
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    clipping: str = facts.MIN_MAX,
    equalize: bool = False,
    progress: Progress = no_progress,
) -> facts.QuantizedModel:
    """Quantize a float model file. Raises ModelError if the file or the data cannot be used."""
    if clipping not in (*facts.CLIPPINGS, facts.AUTO):
        known = ", ".join((*facts.CLIPPINGS, facts.AUTO))
        raise UsageError(f"{clipping!r} is not a clipping; there are {known}")
    # PT2E knows one way to ranges, and weights are equalized in .tflite files.
    is_converted = equalize or (
        clipping != facts.MIN_MAX and path.suffix.lower() == f".{child_steps.TORCH}"
    )
    source = opened(path, is_converted=is_converted, progress=progress)
    calibration = calibrated(source, data, input_range=input_range, progress=progress)
    recipe = facts.Recipe(scheme, float_ends=float_ends)
    equalizing = None
    if equalize:
        other = calibrated(source, data, input_range=input_range, equalize=True, progress=progress)
        before, behind = (_score(one, recipe) for one in (calibration, other))
        equalizing = before.db, behind.db
        if behind.is_clearly_better(before):
            calibration = other
    tried: dict[str, float | None] = {}
    try:
        if clipping == facts.AUTO:
            scores = compare_clippings(calibration, recipe, progress)
            tried = {name: one.db for name, one in scores.items()}
            clipping = best(scores, facts.MIN_MAX)
        made = quantize_with_recipe(
            calibration,
            replace(recipe, clipping=clipping),
            name=path.stem,
            float_bytes=source.size,
            progress=progress,
        )
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    return replace(made, clippings=tried, equalizing=equalizing)


def _score(calibration: facts.Calibration, recipe: facts.Recipe) -> Score:
    (result,) = child_steps.quantize_with_recipes(calibration, [recipe], is_exact=False)
    return score(calibration, result)


def compare_clippings(
    calibration: facts.Calibration, recipe: facts.Recipe, progress: Progress = no_progress
) -> dict[str, Score]:
    """The score of the model by each clipping."""
    recipes = [replace(recipe, clipping=one) for one in facts.CLIPPINGS]
    results = child_steps.quantize_with_recipes(
        calibration, recipes, is_exact=False, progress=progress
    )
    scores = [score(calibration, result) for result in results]
    return dict(zip(facts.CLIPPINGS, scores, strict=True))


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
    child_steps.check_installed(form)
    if is_converted:
        child_steps.check_installed(child_steps.TFLITE)
    if form == child_steps.TFLITE:
        return _opened_tflite(path, tflite_bytes(path))
    file = model_bytes(path)
    try:
        made = child_steps.prepare(form, file, is_converted=is_converted, progress=progress)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    if is_converted:
        original = form, made.data
        return Source(
            path, child_steps.TFLITE, made.converted, made.inputs, len(file), original, made.notes
        )
    return Source(path, form, made.data, made.inputs, len(file), notes=made.notes)


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
    equalize: bool = False,
    progress: Progress = no_progress,
) -> facts.Calibration:
    """The calibration of a float model.

    Quantized models are compared on the first ``compared`` samples, with what the float model of
    the file makes of them.
    """
    samples = dataset_for(data, source.inputs)
    declared = facts.declared_range(input_range)

    def run(form: str, model: bytes, *, equalize: bool) -> facts.Calibration:
        return child_steps.calibrate(
            form,
            model,
            samples,
            source.inputs,
            declared=declared,
            compared=compared,
            equalize=equalize,
            progress=progress,
        )

    try:
        made = run(source.form, source.data, equalize=equalize)
        made = replace(made, warnings=(*source.notes, *made.warnings))
        if source.original is None:
            return made
        real = run(*source.original, equalize=False)
    except ModelError as error:
        raise ModelError(f"{source.path}: {error}") from error
    return replace(made, outputs=real.outputs, output_names=real.output_names)


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
        raise UsageError(
            f"{recipe.scheme!r} is not a scheme; the schemes: {', '.join(facts.SCHEMES)}"
        )
    (result,) = child_steps.quantize_with_recipes(
        calibration, [recipe], is_final=True, progress=progress
    )
    graph = _read_back(result, name)
    names = [short_name(one) for one in calibration.output_names]
    outputs = tuple(output_errors(names, calibration.outputs, result.outputs))
    return facts.QuantizedModel(
        result.data,
        recipe.scheme,
        calibration,
        tuple(float_operators(graph)),
        tuple(kind for kind, _ in result.rewritten),
        outputs,
        len(calibration.outputs[0]),
        len(calibration.model) if float_bytes is None else float_bytes,
        (*calibration.warnings, *_large_errors(outputs, recipe.scheme)),
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


def float_operators(graph: Graph) -> Sequence[facts.FloatOperator]:
    """The operators of a quantized model that compute in float32."""
    return [
        facts.FloatOperator(
            one.sources[0], one.kind, short_name(graph.tensors[one.outputs[0]].name)
        )
        for one in graph.operators
        if works_in_float(graph, one)
    ]


def _read_back(result: child_steps.RecipeResult, name: str) -> Graph:
    """The graph of a file that was made; ModelError if it cannot be imported."""
    # The user's shapes are those of the float model.
    with TemporaryFolder("utvm-quantized") as folder, given_shapes({}):
        path = folder / f"{name}.tflite"
        path.write_bytes(result.data)
        try:
            return load_model(path)
        except ModelError as error:
            text = str(error).removeprefix(f"{path}: ")
            raise ModelError(f"the quantized model cannot be compiled: {text}") from error
