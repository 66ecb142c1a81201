"""The child process for .tflite files, with LiteRT and ai-edge-quantizer.

model                  ──widen─────▶ converted: float32 weights in place of int8 ones
model, input_0.npy ... ──calibrate──▶ prepared, facts.json, output_0.npy ...
prepared, job.json     ──quantize───▶ 0.tflite, 1.tflite ... and results.json
0_compared.tflite ...  ──run────────▶ 0_output_0.npy ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.child_main import run_step
from utvm_deploy.quality.quantizing.clipping import Clipper, with_tied_ranges
from utvm_deploy.quality.quantizing.facts import SCHEMES, Range, Recipe, counting
from utvm_deploy.quality.quantizing.tflite.aeq import quantized_by_aeq
from utvm_deploy.quality.quantizing.tflite.bias import correct_biases
from utvm_deploy.quality.quantizing.tflite.calibrate import (
    float_values,
    make_files,
    observe,
    outputs_of,
    runner,
)
from utvm_deploy.quality.quantizing.tflite.clean import clean
from utvm_deploy.quality.quantizing.tflite.equalize import equalized
from utvm_deploy.quality.quantizing.tflite.layers import Inputs
from utvm_deploy.quality.quantizing.tflite.narrow import narrow_weights, pack_weights
from utvm_deploy.quality.quantizing.tflite.prepare import prepared, with_float_weights
from utvm_deploy.quality.quantizing.tflite.rewrite import Rewriting
from utvm_deploy.quality.quantizing.tflite.rounding import Rounding
from utvm_deploy.quality.quantizing.tflite.weights import mend_channel_scales

#: Samples by which weights are rounded: products of inputs take long, and few say much.
_STATISTICS_SAMPLES = 64


def widen(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Give the operators of float32 their weights as float32."""
    made = with_float_weights((folder / child_files.MODEL).read_bytes())
    if made is None:
        raise ModelError("no operator of float32 has int8 weights")
    (folder / child_files.CONVERTED).write_bytes(made)


def step(folder: Path, job: Mapping[str, Any], _tell: Callable[[int, int], None]) -> None:
    """Run the file on the samples in their order, with its states."""
    data = prepared((folder / child_files.MODEL).read_bytes())
    graph = (model := schema.read_model(data)).subgraphs[0]
    names = [schema.name_of(model, number) for number in graph.outputs]
    child_files.run_in_order(folder, job, runner(data), names)


def calibrate(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Prepare the file, and observe it on the samples."""
    data = prepared((folder / child_files.MODEL).read_bytes())
    inputs = child_files.load_arrays(folder, "input", mapped=True)
    pairs = 0
    if job["equalize"]:
        start = job["held_out"]
        few = [array[start : start + _STATISTICS_SAMPLES] for array in inputs]
        before = data
        data, pairs = equalized(before, lambda: float_values(before, few))
    (folder / child_files.PREPARED).write_bytes(data)
    seen, outputs = observe(data, inputs, job, tell)
    model = schema.read_model(data)
    computed = computed_tensors(model)
    declared = {}
    if job["declared"] is not None:
        ends = [schema.name_of(model, number) for number in model.subgraphs[0].inputs]
        declared = {name: Range(*job["declared"]) for name in ends if name in seen.all}
    known = {
        which: child_files.plain_ranges(
            {name: one for name, one in {**ranges, **declared}.items() if name in computed}
        )
        for which, ranges in (("ranges", seen.all), ("fitted", seen.fitted))
    }
    facts = {
        **known,
        "equalized": pairs,
        "operators": [
            (schema.kind_of(model, one), schema.name_of(model, one.outputs[0]))
            for one in model.subgraphs[0].operators
            if schema.numbers(one.outputs)
        ],
        "outputs": [schema.name_of(model, number) for number in model.subgraphs[0].outputs],
    }
    child_files.save_facts(folder, facts)
    child_files.save_arrays(folder, "output", outputs)


def computed_tensors(model: Any) -> set[str]:
    """The names of all tensors except constants."""
    tensors = model.subgraphs[0].tensors
    return {
        schema.name_of(model, number)
        for number, tensor in enumerate(tensors)
        if schema.constant(model, tensor) is None
    }


def quantize(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Make a file for each recipe, and run it on the samples."""
    data = (folder / child_files.PREPARED).read_bytes()
    inputs = child_files.load_arrays(folder, "input", mapped=True)
    fits = [
        _Fit(
            data,
            [array[0 if is_final else job["held_out"] :] for array in inputs],
            child_files.load_ranges(folder, is_final=is_final),
        )
        for is_final in (False, True)
    ]

    def make(recipe: Recipe, is_final: bool) -> tuple[bytes, list[tuple[str, str]]]:
        fit = fits[is_final]
        clipped = counting(fit.clipper.ranges(recipe.clipping), fit.ranges, recipe)
        ranges = with_tied_ranges(clipped, job["states"])
        return quantized(data, ranges, recipe, fit.layer_inputs, fit.rounding)

    make_files(folder, job, tell, inputs, make)


class _Fit:
    """What some samples say about a model; each is made when it is first needed."""

    def __init__(self, data: bytes, inputs: Sequence[Array], ranges: Mapping[str, Range]) -> None:
        few = [array[:_STATISTICS_SAMPLES] for array in inputs]
        self.ranges = ranges
        self.clipper = Clipper(lambda: float_values(data, inputs), ranges)
        self.layer_inputs = Inputs(schema.read_model(data), lambda: float_values(data, few))
        self.rounding = Rounding(self.layer_inputs)


def quantized(
    data: bytes,
    ranges: Mapping[str, Range],
    recipe: Recipe,
    inputs: Inputs,
    rounding: Rounding,
) -> tuple[bytes, list[tuple[str, str]]]:
    """The file that a recipe describes, and what our rewriting quantized."""
    model = schema.read_model(quantized_by_aeq(data, ranges, recipe))
    mend_channel_scales(model, schema.read_model(data))
    narrowed = narrow_weights(model, inputs.layers, recipe.narrow)
    rounding.run(model, {pair.layer.output for pair in narrowed})
    correct_biases(model, inputs)
    rewritten = []
    for scheme in SCHEMES:
        rewriting = Rewriting(model, scheme, {**ranges, **recipe.ranges}, recipe)
        rewriting.run()
        rewritten += rewriting.rewritten
    _take_any_scales(model)
    pack_weights(model, narrowed)
    clean(model)
    return schema.model_bytes(model), rewritten


def _take_any_scales(model: Any) -> None:
    """Let sums of int16 multiply their inputs by any factor.

    By the schema's default they shift them instead if all scales are powers of two, or nearly. That
    kernel refuses most combinations.
    """
    graph = model.subgraphs[0]
    for operator in graph.operators:
        is_sum = schema.kind_of(model, operator) in ("ADD", "SUB")
        is_wide = graph.tensors[operator.outputs[0]].type == schema.INT16
        # An operator without options has no such default.
        if is_sum and is_wide and operator.builtinOptions is not None:
            operator.builtinOptions.potScaleInt16 = False


def run(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Run quantized files on the compared samples."""
    inputs = child_files.load_arrays(folder, "input", mapped=True)
    compared = tuple(array[: job["compared"]] for array in inputs)
    for index, _ in enumerate(job["recipes"]):
        made = (folder / f"{index}_compared.tflite").read_bytes()
        outputs = outputs_of(made, compared, is_exact=job["exact"])
        child_files.save_arrays(folder, f"{index}_output", outputs)


#: Does one step in a folder; gives the exit status.
main = partial(
    run_step,
    {"widen": widen, "step": step, "calibrate": calibrate, "quantize": quantize, "run": run},
)

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
