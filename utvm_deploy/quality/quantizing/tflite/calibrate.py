"""Runs a float .tflite file on samples, and keeps the range of every tensor."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.files.tflite_states import with_equal_steps
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.facts import Range, Recipe


def observe(
    data: bytes,
    inputs: Sequence[Array],
    kept: int,
    progress: Callable[[int, int], None],
    positions: Sequence[int] | None = None,
) -> tuple[dict[str, Range], tuple[Array, ...]]:
    """The range of each float tensor by its name, and the outputs of the first ``kept`` samples.

    ``inputs`` has one array per input; its first axis counts the samples. ``positions`` are their
    numbers in the user's data, for messages. Raises ModelError if a
    tensor becomes infinite or NaN.
    """
    interpreter = _interpreter(data, preserves=True)
    details = _float_details(interpreter)
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    outputs: list[list[Array]] = []
    count = len(inputs[0])
    for sample in range(count):
        made = _run(interpreter, [array[sample] for array in inputs])
        if sample < kept:
            outputs.append(made)
        for name, array in _tensors(interpreter, details):
            low, high = float(array.min()), float(array.max())
            if not (np.isfinite(low) and np.isfinite(high)):
                place = positions[sample] if positions else sample
                raise ModelError(
                    f"tensor '{short_name(name)}' of the float model becomes {_what(low, high)} "
                    f"on sample {place}; remove the sample, or repair the model"
                )
            lows[name] = min(low, lows.get(name, low))
            highs[name] = max(high, highs.get(name, high))
        progress(sample + 1, count)
    ranges = {name: Range(lows[name], highs[name]) for name in lows}
    return ranges, tuple(np.stack(arrays) for arrays in zip(*outputs, strict=True))


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


def _what(low: float, high: float) -> str:
    return "NaN" if np.isnan(low) or np.isnan(high) else "infinite"


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
    make: Callable[[Recipe], tuple[bytes, list[tuple[str, str]]]],
) -> None:
    """Make the file of each recipe of a job, and run it on the samples.

    ``make`` also returns the kind and the first output of each operator that we quantized.
    """
    results = []
    for index, facts in enumerate(job["recipes"]):
        made, rewritten = make(child_files.recipe_of(facts))
        if job["states"]:
            made = with_equal_steps(made, job["states"], job["outputs"])
        (folder / f"{index}.tflite").write_bytes(made)
        if inputs and len(inputs[0]):
            outputs = outputs_of(made, inputs, is_exact=job["exact"])
            child_files.save_arrays(folder, f"{index}_output", outputs)
        results.append(rewritten)
        tell(index + 1, len(job["recipes"]))
    (folder / child_files.RESULTS).write_text(json.dumps(results), encoding="utf-8")
