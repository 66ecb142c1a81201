"""Calibrates and quantizes models in child processes.

    calibration = calibrate(TFLITE, data, samples, inputs)    # once
    results = quantize_with_recipes(calibration, [Recipe()])  # as often as wanted

A list of recipes shares one child, so that one more file costs the time of the quantizer only.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.metadata
import json
import select
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from utvm_deploy.base import process
from utvm_deploy.base.errors import DataError, ModelError, UtvmError, last_words
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.files.state import KeptState
from utvm_deploy.frontend.torch.modules import quiet_torch
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.datasets import Dataset, ModelInput
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.facts import (
    COMPARED_SAMPLES,
    KEPT_SAMPLES,
    PT2E_SAMPLES,
    Calibration,
    Range,
    Recipe,
    held_out,
    too_wide,
)
from utvm_deploy.quality.quantizing.samples import BATCH, Watch

#: The formats of float models, and the child that quantizes each.
TFLITE, ONNX, TORCH = "tflite", "onnx", "pt2"
_CHILDREN = {
    TFLITE: "utvm_deploy.quality.quantizing.tflite.child",
    ONNX: "utvm_deploy.quality.quantizing.onnx.child",
    TORCH: "utvm_deploy.quality.quantizing.torch.child",
}
# What quantizes a format: packages, and the version if only one will do.
_NEEDED: Mapping[str, tuple[tuple[str, str | None], ...]] = {
    TFLITE: (("ai-edge-quantizer", "0.10.0"),),
    ONNX: (("onnx", None), ("onnxruntime", None)),
    TORCH: (("torch", None), ("torchao", None)),
}
_INSTALL = {
    TFLITE: "pip install 'utvm-deploy[quantize]'",
    ONNX: "pip install 'utvm-deploy[onnx]'",
    TORCH: "pip install 'utvm-deploy[torch]'",
}
Inputs: TypeAlias = tuple[ModelInput, ...]

_START_TIMEOUT_S = 120.0
# A sample, and a file, on a loaded machine.
SAMPLE_TIMEOUT_S = 10.0
_RECIPE_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Prepared:
    """A float file of another format in the form that is calibrated."""

    data: bytes
    inputs: Inputs
    # The model as a float .tflite file; empty unless it was asked for.
    converted: bytes
    # Messages for the user, such as a batch that was bound to 1.
    notes: tuple[str, ...] = ()
    # What it writes into, which its last inputs and outputs are.
    states: tuple[KeptState, ...] = ()


@dataclass(frozen=True, eq=False)
class RecipeResult:
    """What one recipe became.

    ``outputs`` are those of a model that was made without the samples that are held out. ``data``
    is this model, or the final one.
    """

    data: bytes
    rewritten: tuple[tuple[str, str], ...]  # kind and first output of what we quantized
    outputs: tuple[Array, ...]  # real numbers, for the samples of the calibration


def check_installed(form: str) -> None:
    """ModelError if a package that quantizes this format is missing, or is another version."""
    for package, wanted in _NEEDED[form]:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise ModelError(
                f"quantizing .{form} files needs the package {package}: {_INSTALL[form]}"
            ) from error
        if wanted not in (None, version):
            raise ModelError(
                f"{package} {version} is installed, but version {wanted} is needed: "
                f"{_INSTALL[form]}"
            )


def prepare(
    form: str, data: bytes, *, is_converted: bool = False, progress: Progress = no_progress
) -> Prepared:
    """A float file of another format in the form that is calibrated, and its inputs.

    With ``is_converted``, it is also made a float .tflite file. Raises ModelError naming the
    operators that .tflite files have no form of.
    """
    with TemporaryFolder("utvm-quantize") as folder:
        (folder / child_files.MODEL).write_bytes(data)
        job = {"converted": is_converted, "shapes": dict(chosen_now().shapes)}
        run_step(form, "prepare", folder, job, 0.0, progress)
        facts = json.loads((folder / child_files.FACTS).read_text("utf-8"))
        inputs = tuple(ModelInput(n, tuple(shape), kind) for n, shape, kind in facts["inputs"])
        converted = (folder / child_files.CONVERTED).read_bytes() if is_converted else b""
        notes = tuple(facts.get("notes", ()))
        firsts = child_files.load_arrays(folder, "first")
        named = zip(facts.get("states", ()), firsts, strict=True)
        states = tuple(KeptState(found, left, first) for (found, left), first in named)
        prepared = (folder / child_files.PREPARED).read_bytes()
        return Prepared(prepared, inputs, converted, notes, states)


def float_weights(data: bytes) -> bytes:
    """A .tflite file whose float32 operators have float32 weights in place of int8 ones.

    Raises ModelError if none has int8 weights.
    """
    with TemporaryFolder("utvm-quantize") as folder:
        (folder / child_files.MODEL).write_bytes(data)
        run_step(TFLITE, "widen", folder, {}, 0.0, no_progress)
        return (folder / child_files.CONVERTED).read_bytes()


def calibrate(
    form: str,
    data: bytes,
    samples: Dataset,
    inputs: Inputs,
    *,
    declared: Range | None = None,
    compared: int = COMPARED_SAMPLES,
    equalize: bool = False,
    progress: Progress = no_progress,
) -> Calibration:
    """Run a float model on all samples, and keep the first with their outputs.

    These are ``compared`` samples, or a quarter of all if these are fewer.

    Raises ModelError for bad samples or weights.
    """
    count = len(samples)
    if count < 2:
        raise DataError(
            f"the data {samples.origin} hold one sample, too few to calibrate with; give a few "
            "hundred typical inputs"
        )
    with TemporaryFolder("utvm-quantize") as folder:
        (folder / child_files.MODEL).write_bytes(data)
        watch = Watch(inputs, declared)
        _write_samples(folder, samples, inputs, watch)
        used = min(count, PT2E_SAMPLES) if form == TORCH else count
        apart = held_out(used, compared)
        first = apart or compared
        job = {
            "kept": max(first, KEPT_SAMPLES),
            "held_out": apart,
            "equalize": equalize,
            "declared": None if declared is None else (declared.low, declared.high),
            # For messages: where each sample is in the user's data.
            "positions": None if samples.positions is None else samples.positions.tolist(),
        }
        run_step(form, "calibrate", folder, job, count * SAMPLE_TIMEOUT_S, progress)
        facts = json.loads((folder / child_files.FACTS).read_text("utf-8"))
        _check_states([one.name for one in inputs], facts["outputs"])
        ranges = child_files.load_ranges(folder, is_final=True)
        for name, one in ranges.items():
            if one.is_too_wide:
                raise ModelError(too_wide(name, one))
        kept = child_files.load_arrays(folder, "input", mapped=True)
        outputs = child_files.load_arrays(folder, "output")
        most = PT2E_SAMPLES if form == TORCH else max(KEPT_SAMPLES, compared)
        return Calibration(
            form,
            (folder / child_files.PREPARED).read_bytes(),
            ranges,
            child_files.load_ranges(folder, is_final=False),
            tuple((kind, output) for kind, output in facts["operators"]),
            tuple(np.array(array[:most]) for array in kept),
            tuple(array[:first] for array in outputs),
            tuple(facts["outputs"]),
            used,
            apart,
            tuple(watch.warnings()),
            facts.get("equalized", 0),
            all_outputs=outputs,
        )


def _check_states(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """ModelError for states that the float model has not."""
    for pair in chosen_now().tied:
        for name, known, what in zip(pair, (inputs, outputs), ("input", "output"), strict=True):
            check_state(name, known, what)


def check_state(name: str, known: Collection[str], what: str) -> None:
    """ModelError for a state that is none of the ``known`` inputs, or outputs."""
    if name not in known:
        raise ModelError(
            f"the model has no {what} '{name}' for --state; its {what}s: {', '.join(known)}"
        )


def quantize_with_recipes(
    calibration: Calibration,
    recipes: Sequence[Recipe],
    *,
    is_exact: bool = True,
    is_final: bool = False,
    progress: Progress = no_progress,
) -> tuple[RecipeResult, ...]:
    """The file that each recipe describes, and its outputs.

    These are of the reference kernels, or else of LiteRT's fast ones, which may differ by a step.
    Files are made without the samples that are held out, or of all samples if they are final.
    Raises ModelError if the quantizer refuses a recipe.
    """
    with TemporaryFolder("utvm-quantize") as folder:
        (folder / child_files.PREPARED).write_bytes(calibration.model)
        known = {"ranges": calibration.ranges, "fitted": calibration.fitted}
        plain = {name: child_files.plain_ranges(ranges) for name, ranges in known.items()}
        child_files.save_facts(folder, plain)
        child_files.save_arrays(folder, "input", calibration.inputs)
        job = {
            "recipes": [_plain(recipe) for recipe in recipes],
            "exact": is_exact,
            "compared": len(calibration.outputs[0]),
            "held_out": calibration.held_out,
            "final": is_final,
            # This process of the user's never runs a model that was just made.
            "runs": not _is_here(calibration.form),
            "states": [*chosen_now().tied, *((s.found, s.left) for s in calibration.states)],
            "inner": [name for s in calibration.states for name in (s.found, s.left)],
            "outputs": calibration.output_names,
        }
        compared = len(calibration.outputs[0]) * SAMPLE_TIMEOUT_S
        timeout_s = len(recipes) * (_RECIPE_TIMEOUT_S + compared)
        run_step(calibration.form, "quantize", folder, job, timeout_s, progress)
        if not job["runs"]:
            run_step(TFLITE, "run", folder, job, timeout_s, progress)
        rewritten = json.loads((folder / child_files.RESULTS).read_text("utf-8"))
        return tuple(
            RecipeResult(
                (folder / f"{index}.tflite").read_bytes(),
                tuple((kind, output) for kind, output in rewritten[index]),
                child_files.load_arrays(folder, f"{index}_output"),
            )
            for index in range(len(recipes))
        )


def _plain(recipe: Recipe) -> dict[str, Any]:
    ranges = child_files.plain_ranges(recipe.ranges)
    return {**asdict(recipe), "operators": dict(recipe.operators), "ranges": ranges}


def _write_samples(folder: Path, samples: Dataset, inputs: Inputs, watch: Watch) -> None:
    """Write the samples to files, batch by batch, so that they need not fit into memory."""
    count = len(samples)
    with contextlib.ExitStack() as stack:
        # Written and not mapped: on a full disk, a write to mapped memory would kill this process.
        files = [
            stack.enter_context((folder / f"input_{index}.npy").open("wb"))
            for index, _ in enumerate(inputs)
        ]
        for file, one in zip(files, inputs, strict=True):
            header = {
                "descr": np.lib.format.dtype_to_descr(np.dtype(one.dtype)),
                "fortran_order": False,
                "shape": (count, *one.shape),
            }
            np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, count, BATCH):
            arrays = samples.batch(start, start + BATCH)
            watch.see(arrays)
            for file, array, one in zip(files, arrays, inputs, strict=True):
                check_integers(array, one, samples.origin)
                file.write(array.astype(one.dtype).tobytes())


def check_integers(array: Array, one: ModelInput, origin: str) -> None:
    """DataError for floats that are data of an input of integers."""
    if one.dtype != "float32" and array.dtype.kind == "f":
        raise DataError(
            f"input {one.name!r} of the model takes {one.dtype}, and the data {origin} are floats; "
            f"convert them with astype({one.dtype!r})"
        )


def run_step(
    form: str, step: str, folder: Path, job: dict[str, Any], timeout_s: float, progress: Progress
) -> None:
    """Do a step of a format's child in a folder; ModelError if it refuses or takes too long."""
    if _is_here(form):
        _run_here(step, folder, job, progress)
        return
    (folder / child_files.JOB).write_text(json.dumps(job), encoding="utf-8")
    argv = [sys.executable, "-m", _CHILDREN[form], step, str(folder)]
    deadline = time.monotonic() + _START_TIMEOUT_S + timeout_s
    # A dry run, too, says what would come out: nothing of the user's is touched.
    start = contextvars.Context().run
    with start(process.start, argv, env=process.child_environment()) as child:
        assert child.popen.stdout is not None
        if not _follow(child.popen.stdout, step, deadline, progress):
            raise ModelError(
                f"the {step} step takes more than {timeout_s:.0f} s; use fewer samples"
            )
        child.popen.wait(max(deadline - time.monotonic(), 1.0))
        code = child.returncode
        words = child.last_words().splitlines()
    if code == 0:
        return
    if (folder / child_files.REFUSAL).exists():
        raise ModelError((folder / child_files.REFUSAL).read_text("utf-8"))
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        raise ModelError(
            f"the quantizer was ended by {name} in the {step} step: a library crashed on this "
            "model, or the system ran out of memory"
        )
    said = words[-1].strip() if words else "no reason given"
    raise ModelError(f"the quantizer ended with status {code} in the {step} step ({said})")


def _is_here(form: str) -> bool:
    """Whether this process does the steps of a format: it has loaded PyTorch, which takes long."""
    return form == TORCH and "torch" in sys.modules


def _run_here(step: str, folder: Path, job: dict[str, Any], progress: Progress) -> None:
    try:
        with quiet_torch():
            steps = import_module(_CHILDREN[TORCH]).STEPS
            # As a child reads it.
            steps[step](folder, json.loads(json.dumps(job)), partial(progress, step))
    except UtvmError:
        raise
    except Exception as error:  # PyTorch raises all kinds
        raise ModelError(f"its quantization failed with {last_words(error)}") from error


def _follow(stdout: IO[bytes], what: str, deadline: float, progress: Progress) -> bool:
    """Report progress until the child closes its output; False if the deadline passes first."""
    rest = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([stdout], [], [], left)[0]:
            break
        received = stdout.read(4096)
        if not received:
            return True
        *lines, rest = (rest + received).split(b"\n")
        if lines:
            done, total = lines[-1].split()
            progress(what, int(done), int(total))
    return False
