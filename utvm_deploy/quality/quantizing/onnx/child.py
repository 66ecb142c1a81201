"""The child process for ONNX files: onnxruntime makes a QDQ file, which is then converted.

model                  ──prepare────▶ prepared, facts.json, and converted if the job wants it
model, input_0.npy ... ──calibrate──▶ prepared, facts.json, output_0.npy ...
prepared, job.json     ──quantize───▶ 0.tflite, 1.tflite ... and results.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.child_main import run_step
from utvm_deploy.quality.quantizing.clipping import Clipper, with_tied_ranges
from utvm_deploy.quality.quantizing.facts import MIN_MAX, Range, Recipe, counting
from utvm_deploy.quality.quantizing.onnx import file as onnx_file
from utvm_deploy.quality.quantizing.onnx import runtime as onnx_runtime
from utvm_deploy.quality.quantizing.onnx.shared_ranges import with_shared_ranges
from utvm_deploy.quality.quantizing.tflite.calibrate import make_files
from utvm_deploy.quality.quantizing.tflite.finishing import finished, has_integers
from utvm_deploy.quality.quantizing.tflite.fold import folded


def prepare(folder: Path, job: Mapping[str, Any], _tell: Callable[[int, int], None]) -> None:
    """Check and simplify the file, describe its inputs, and convert it to a float .tflite file."""
    data = (folder / child_files.MODEL).read_bytes()
    with given_only(Chosen({name: tuple(shape) for name, shape in job["shapes"].items()})):
        inputs = onnx_file.input_facts(onnx_file.checked_model(data))
        facts = {"inputs": inputs, "notes": onnx_file.notes_of(data)}
        (folder / child_files.PREPARED).write_bytes(onnx_runtime.prepared(data, folder))
    child_files.save_facts(folder, facts)
    if job["converted"]:
        path = folder / "float.onnx"
        path.write_bytes((folder / child_files.PREPARED).read_bytes())
        (folder / child_files.CONVERTED).write_bytes(folded(_converted(path)))


def step(folder: Path, job: Mapping[str, Any], _tell: Callable[[int, int], None]) -> None:
    """Run a prepared file on the samples in their order, with its states."""
    data = (folder / child_files.MODEL).read_bytes()
    child_files.run_in_order(folder, job, *onnx_runtime.runner(data))


def calibrate(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Observe a prepared file on the samples."""
    data = (folder / child_files.MODEL).read_bytes()
    (folder / child_files.PREPARED).write_bytes(data)
    inputs = child_files.load_arrays(folder, "input", mapped=True)
    seen, outputs, names = onnx_runtime.observe(data, inputs, job, tell)
    declared = {}
    if job["declared"] is not None:
        ends = [value.name for value in onnx_file.inputs_of(onnx_file.checked_model(data))]
        declared = {name: Range(*job["declared"]) for name in ends if name in seen.all}
    known = {
        which: child_files.plain_ranges({**with_shared_ranges(data, ranges), **declared})
        for which, ranges in (("ranges", seen.all), ("fitted", seen.fitted))
    }
    facts = {
        **known,
        "operators": [(kind, output) for kind, output, _ in onnx_file.operators_of(data)],
        "outputs": names,
    }
    child_files.save_facts(folder, facts)
    child_files.save_arrays(folder, "output", outputs)


def quantize(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Make a file for each recipe, and run it on the samples."""
    data = (folder / child_files.PREPARED).read_bytes()
    inputs = child_files.load_arrays(folder, "input", mapped=True)
    fitted = tuple(array[job["held_out"] :] for array in inputs)
    clippers = [
        Clipper(
            lambda used=used: onnx_runtime.float_values(data, used),  # type: ignore[misc]
            child_files.load_ranges(folder, is_final=is_final),
        )
        for is_final, used in ((False, fitted), (True, inputs))
    ]

    def make(recipe: Recipe, is_final: bool) -> tuple[bytes, list[tuple[str, str]]]:
        observed = clippers[is_final].ranges(MIN_MAX)
        ranges = counting(clippers[is_final].ranges(recipe.clipping), observed, recipe)
        clipped = with_tied_ranges(ranges, job["states"])
        qdq = onnx_runtime.quantized(data, clipped, inputs, recipe, folder)
        made, rewritten = finished(_converted(qdq), recipe, clipped)
        if not has_integers(made):
            kinds = ", ".join(sorted({kind for kind, _, _ in onnx_file.operators_of(data)}))
            raise ModelError(
                f"none of its operators ({kinds}) can be quantized to {recipe.scheme}; compile "
                "it as float32"
            )
        return made, rewritten

    make_files(folder, job, tell, inputs, make)


def _converted(path: Path) -> bytes:
    """The .tflite file of a QDQ file, or of a float one."""
    try:
        return onnx_to_model(path, is_float_converted=True)
    except ModelError as error:
        raise ModelError(str(error).removeprefix(f"{path}: ")) from error


#: Does one step in a folder; gives the exit status.
main = partial(
    run_step, {"prepare": prepare, "step": step, "calibrate": calibrate, "quantize": quantize}
)

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
