"""The child process for .pt2 files: PT2E quantizes the program, which is then converted.

model                  ──prepare────▶ prepared, facts.json, and converted if the job wants it
model, first_0.npy ... ──step───────▶ what states hold: input_0.npy ...
model, input_0.npy ... ──calibrate──▶ prepared, facts.json, output_0.npy ...
prepared, job.json     ──quantize───▶ 0.tflite, 1.tflite ... and results.json
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.relax.torch_evaluation import check_evaluation
from utvm_deploy.frontend.torch import export
from utvm_deploy.frontend.torch.batch import batch_notes, with_batch_of_one
from utvm_deploy.frontend.torch.states import with_states_outside
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.child_main import Step, run_step
from utvm_deploy.quality.quantizing.facts import MIN_MAX, Range, Recipe
from utvm_deploy.quality.quantizing.tflite.calibrate import make_files
from utvm_deploy.quality.quantizing.tflite.finishing import finished
from utvm_deploy.quality.quantizing.tflite.fold import folded
from utvm_deploy.quality.quantizing.torch.module import (
    check_weights,
    eager_outputs,
    float_program,
    positional,
    quantized_program,
)


def prepare(folder: Path, job: Mapping[str, Any], _tell: Callable[[int, int], None]) -> None:
    """Check the program, describe its inputs, and convert it to a float .tflite file."""
    data = (folder / child_files.MODEL).read_bytes()
    program = _program(folder, data)
    if export.is_quantized(program):
        raise ModelError("it is quantized already; give the float model that it was made of")
    export.check_types(program)
    check_evaluation(program, is_quantized=True)
    notes = batch_notes(program)
    torch = export.load_torch()
    program, states = with_states_outside(torch, with_batch_of_one(torch, program))
    if notes or states:
        torch.export.save(program, folder / child_files.PREPARED)
        program = positional(torch, program)
    else:
        (folder / child_files.PREPARED).write_bytes(data)
    check_weights(torch, program.module(check_guards=False))
    child_files.save_arrays(folder, "first", tuple(one.first for one in states))
    pairs = [(one.found, one.left) for one in states]
    facts = {"inputs": _inputs(program), "notes": notes, "states": pairs}
    child_files.save_facts(folder, facts)
    if job["converted"]:
        (folder / child_files.CONVERTED).write_bytes(_in_float(program))


def step(folder: Path, job: Mapping[str, Any], _tell: Callable[[int, int], None]) -> None:
    """Run the program on the samples in their order, with its states."""
    torch = export.load_torch()
    module = _program(folder, (folder / child_files.MODEL).read_bytes()).module(check_guards=False)

    def run(sample: Sequence[Array]) -> Sequence[Array]:
        given = tuple(torch.from_numpy(np.array(one)) for one in sample)
        return [one[0] for one in eager_outputs(torch, module, [given])]

    with torch.no_grad():
        child_files.run_in_order(folder, job, run)


def calibrate(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Run the program on the first samples; PT2E observes all of them in the quantize step."""
    data = (folder / child_files.MODEL).read_bytes()
    (folder / child_files.PREPARED).write_bytes(data)
    program = _program(folder, data)
    samples = _samples(folder, job["kept"])
    with export.load_torch().no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch deprecates in itself
        outputs = eager_outputs(export.load_torch(), program.module(check_guards=False), samples)
    names = [str(name) for name in program.graph_signature.user_outputs]
    for name, array in zip(names, outputs, strict=True):
        if not np.isfinite(array).all():
            raise ModelError(
                f"output '{short_name(name)}' of the float model becomes NaN or infinite; remove "
                "the samples that cause it, or repair the model"
            )
    declared = job["declared"]
    ends = [name for name, _, dtype in _inputs(program) if dtype == "float32"]
    known = {} if declared is None else dict.fromkeys(ends, declared)
    facts = {
        "ranges": known,
        "fitted": known,
        "operators": [],
        "outputs": names,
    }
    child_files.save_facts(folder, facts)
    child_files.save_arrays(folder, "output", tuple(outputs))
    tell(len(samples), len(samples))


def quantize(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Make a file for each recipe, and run it on the samples."""
    program = _program(folder, (folder / child_files.PREPARED).read_bytes())
    declared = next(iter(child_files.load_ranges(folder, is_final=True).values()), None)
    samples = _samples(folder)
    inputs = child_files.load_arrays(folder, "input")
    names = [name for name, _, _ in _inputs(program)]
    tied = [(names.index(one), job["outputs"].index(left)) for one, left in job["states"]]

    def make(recipe: Recipe, is_final: bool) -> tuple[bytes, list[tuple[str, str]]]:
        used = samples[0 if is_final else job["held_out"] :]
        return finished(_converted(program, used, recipe, declared, tied), recipe)

    make_files(folder, job, tell, inputs, make)


def _converted(
    program: Any,
    samples: list[Any],
    recipe: Recipe,
    declared: Range | None,
    tied: Sequence[tuple[int, int]],
) -> bytes:
    if recipe.operators or recipe.ranges:
        raise ModelError("a PyTorch program has one scheme for all operators")
    if recipe.clipping != MIN_MAX:
        raise ModelError(
            f"a PyTorch program is quantized with the clipping {MIN_MAX} only, not "
            f"{recipe.clipping}; leave --clipping out"
        )
    torch = export.load_torch()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what PyTorch deprecates in itself
            module = program.module(check_guards=False)
            made = quantized_program(
                torch, module, samples, samples[0], recipe.scheme, declared, tied
            )
    except ModelError:
        raise
    except Exception as error:  # of many classes
        raise ModelError(f"PT2E cannot quantize it: {last_words(error)}") from error
    if not export.is_quantized(made):
        raise ModelError("PT2E quantizes none of its operators; compile it as float32")
    return export.program_to_tflite(made, "model", "made from a PyTorch program")


def _in_float(program: Any) -> bytes:
    torch = export.load_torch()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch deprecates in itself
        made = float_program(torch, program.module(check_guards=False), _example(torch, program))
    return folded(
        export.program_to_tflite(made, "model", "made from a float model", is_float_converted=True)
    )


def _example(torch: Any, program: Any) -> tuple[Any, ...]:
    """Zeros of the inputs' shapes."""
    return tuple(
        torch.zeros(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in _inputs(program)
    )


def _program(folder: Path, data: bytes) -> Any:
    path = folder / "model.pt2"
    path.write_bytes(data)
    try:
        return positional(export.load_torch(), export.loaded_program(path))
    except ModelError as error:
        said = str(error).removeprefix(f"{path} ").removeprefix(f"{path}: ")
        raise ModelError(f"the file {said}") from error


def _inputs(program: Any) -> list[tuple[str, tuple[int, ...], str]]:
    names = program.graph_signature.user_inputs
    return [
        (str(node.name), tuple(node.meta["val"].shape), str(node.meta["val"].dtype)[6:])
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    ]


def _samples(folder: Path, most: int | None = None) -> list[Any]:
    arrays = child_files.load_arrays(folder, "input", mapped=True)
    torch = export.load_torch()
    rows = zip(*(array[:most] for array in arrays), strict=True)
    return [tuple(torch.from_numpy(np.array(part)) for part in row) for row in rows]


STEPS: Mapping[str, Step] = {
    "prepare": prepare,
    "step": step,
    "calibrate": calibrate,
    "quantize": quantize,
}
#: Does one step in a folder; gives the exit status.
main = partial(run_step, STEPS)

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
