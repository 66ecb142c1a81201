"""Runs a float .tflite file on samples, and keeps the range of every tensor."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.files.tflite_states import with_equal_steps
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.facts import COUNTING, Range, Recipe
from utvm_deploy.quality.quantizing.tflite.finishing import without_float_ends
from utvm_deploy.quality.quantizing.tflite.masks import least_top, limited, scores_of


class Observed:
    """The ranges of tensors: on all samples, and without the first, which are held out.

    ``scores`` are the tensors that softmax takes along the last dimension: they may be minus
    infinity. ``masks`` may be added to scores to hide some.
    """

    def __init__(
        self, job: Mapping[str, Any], scores: Collection[str], masks: Collection[str]
    ) -> None:
        self._scores, self._masks = scores, masks
        self.all: dict[str, Range] = {}
        self.fitted: dict[str, Range] = {}
        self._held_out: int = job["held_out"]
        # Of the samples in the user's data, for messages.
        self._positions: Sequence[int] | None = job["positions"]

    def see(self, sample: int, name: str, array: Array) -> None:
        """Take a tensor into account; ModelError if it became infinite or NaN."""
        top = None
        if name in self._masks:
            array = limited(array)
        if name in self._scores:
            top = least_top(array)
            array = np.maximum(array, top - max(COUNTING.values()))
        low, high = float(array.min()), float(array.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            place = self._positions[sample] if self._positions else sample
            what = "NaN" if np.isnan(low) or np.isnan(high) else "infinite"
            raise ModelError(
                f"tensor '{short_name(name)}' of the float model becomes {what} on sample {place}; "
                "remove the sample, or repair the model"
            )
        for ranges in (self.all, self.fitted)[: 1 if sample < self._held_out else 2]:
            before = ranges.get(name, Range(low, high, top))
            if top is not None and before.top is not None:
                top = min(top, before.top)
            ranges[name] = Range(min(low, before.low), max(high, before.high), top)


def observe(
    data: bytes,
    inputs: Sequence[Array],
    job: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> tuple[Observed, tuple[Array, ...]]:
    """The ranges of the float tensors by their names, and the outputs of the first samples.

    ``inputs`` has one array per input; its first axis counts the samples. Raises ModelError if a
    tensor becomes infinite or NaN.
    """
    interpreter = _interpreter(data, preserves=True)
    details = _float_details(interpreter)
    seen = Observed(job, *scores_of(data))
    outputs: list[list[Array]] = []
    count = len(inputs[0])
    for sample in range(count):
        made = _run(interpreter, [array[sample] for array in inputs])
        if sample < job["kept"]:
            outputs.append(made)
        for name, array in _tensors(interpreter, details):
            seen.see(sample, name, array)
        progress(sample + 1, count)
    return seen, tuple(np.stack(arrays) for arrays in zip(*outputs, strict=True))


def float_values(data: bytes, inputs: Sequence[Array]) -> Iterator[tuple[str, Array]]:
    """The name and the elements of each float tensor, on each sample."""
    interpreter = _interpreter(data, preserves=True)
    details = _float_details(interpreter)
    for sample in range(len(inputs[0])):
        _run(interpreter, [array[sample] for array in inputs])
        yield from _tensors(interpreter, details)


def _float_details(interpreter: Any) -> list[Any]:
    return [
        detail
        for detail in interpreter.get_tensor_details()
        if detail["dtype"] is np.float32 and detail["name"]
    ]


def _tensors(interpreter: Any, details: Sequence[Any]) -> Iterator[tuple[str, Array]]:
    for detail in details:
        try:
            array = interpreter.get_tensor(detail["index"])
        except ValueError:  # a tensor that no operator uses has no memory
            continue
        if array.size:
            yield detail["name"], array


def outputs_of(data: bytes, inputs: Sequence[Array], *, is_exact: bool = True) -> tuple[Array, ...]:
    """What LiteRT makes of the samples, by its reference or its fast kernels, as real numbers.

    Float samples are quantized by the scale of an integer input.
    """
    interpreter = _interpreter(data, preserves=False, is_fast=not is_exact)
    made = [
        _run(interpreter, [array[sample] for array in inputs]) for sample in range(len(inputs[0]))
    ]
    return tuple(np.stack(arrays) for arrays in zip(*made, strict=True))


def runner(data: bytes) -> Callable[[Sequence[Array]], Sequence[Array]]:
    """What runs a float file on one sample."""
    interpreter = _interpreter(data, preserves=False, is_fast=True)
    return lambda sample: [np.array(one) for one in _run(interpreter, sample)]


def _interpreter(data: bytes, *, preserves: bool, is_fast: bool = False) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = (
        # The float model runs on the fast kernels: its last bits do not matter here.
        OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        if preserves or is_fast
        else OpResolverType.BUILTIN_REF
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # keeping all tensors is what is wanted here
            interpreter = Interpreter(
                model_content=data,
                experimental_op_resolver_type=resolver,
                experimental_preserve_all_tensors=preserves,
            )
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        what = "float" if preserves else "quantized"
        raise ModelError(f"LiteRT cannot run the {what} model: {last_words(error)}") from error
    return interpreter


def _run(interpreter: Any, sample: Sequence[Array]) -> list[Array]:
    for detail, array in zip(interpreter.get_input_details(), sample, strict=True):
        interpreter.set_tensor(detail["index"], _quantized(array, detail))
    interpreter.invoke()
    return list(_real(interpreter))


def _quantized(array: Array, detail: Any) -> Array:
    scale, zero_point = detail["quantization"]
    dtype = np.dtype(detail["dtype"])
    if array.dtype == dtype or not scale:
        return np.asarray(array.reshape(detail["shape"]).astype(dtype))
    info = np.iinfo(detail["dtype"])
    steps = np.rint(array.astype(np.float64) / scale) + zero_point
    return np.asarray(np.clip(steps, info.min, info.max).astype(dtype).reshape(detail["shape"]))


def _real(interpreter: Any) -> Iterator[Array]:
    for detail in interpreter.get_output_details():
        array = interpreter.get_tensor(detail["index"])
        scale, zero_point = detail["quantization"]
        if scale and array.dtype != np.float32:
            array = (array.astype(np.float64) - zero_point) * scale
        yield array


def make_files(
    folder: Path,
    job: Mapping[str, Any],
    tell: Callable[[int, int], None],
    inputs: Sequence[Array],
    make: Callable[[Recipe, bool], tuple[bytes, list[tuple[str, str]]]],
) -> None:
    """Make the file of each recipe of a job, and run it on the compared samples.

    ``make`` gets a recipe, and whether to use all samples: otherwise, without those that are held
    out. It also returns the kind and the first output of each operator that we quantized. If the
    job says so, another process runs the files.
    """
    compared = tuple(array[: job["compared"]] for array in inputs)
    results = []
    for index, facts in enumerate(job["recipes"]):
        recipe = child_files.recipe_of(facts)
        for is_final in (False, True)[: 1 + (job["final"] and job["held_out"] > 0)]:
            made, rewritten = make(recipe, is_final)
            if job["inner"]:
                own = [place for place, name in enumerate(job["outputs"]) if name in job["inner"]]
                made = without_float_ends(made, job["inner"], own)
            if job["states"]:
                made = with_equal_steps(made, job["states"], job["outputs"])
            if not is_final and not job["runs"]:
                (folder / f"{index}_compared.tflite").write_bytes(made)
            elif not is_final and compared and len(compared[0]):
                outputs = outputs_of(made, compared, is_exact=job["exact"])
                child_files.save_arrays(folder, f"{index}_output", outputs)
        (folder / f"{index}.tflite").write_bytes(made)
        results.append(rewritten)
        tell(index + 1, len(job["recipes"]))
    (folder / child_files.RESULTS).write_text(json.dumps(results), encoding="utf-8")
