"""What float, int8, int4 and int16x8 answer to held-out inputs, and what quantizing takes.

    python benchmarks/quantize/accuracy.py MODEL:CALIB.npz:LABELLED.npz... [--board BOARD]
        [--flash-budget BYTES]
    python benchmarks/quantize/accuracy.py MODEL:LOW..HIGH...

Without data, smooth random inputs between LOW and HIGH take their place, other ones for calibration
than for the comparison. They show the error of quantizing, and not how good a model is.

Prints a row for each model and form: accuracy or R2 where there are labels or targets, how often
the largest output is the same as of float32, and SQNR. With --board, there is a mixed form, too.
The device's answers are compared with those of the reference kernels, byte for byte, and the model
is profiled there. --flash-budget is for the mixed form. --board-samples says
how many inputs the device gets; the default is all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph, Tensor
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.quality.quantizing.child_steps import quantize_with_recipes
from utvm_deploy.quality.quantizing.facts import FLOAT, Recipe
from utvm_deploy.quality.quantizing.model_steps import calibrated, opened
from utvm_deploy.quality.quantizing.sqnr import output_errors

Array = npt.NDArray[np.generic]
SCHEMES = ("int8", "int4", "int16x8")
CALIBRATION, COMPARED = 200, 100
#: SQNR that outputs should have at least, in dB; layers are named where it is less.
FLOORS = {"int8": 20.0, "int4": 12.0, "int16x8": 35.0}
NAMED = 3
TIMEOUT_S = 900


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs to calibrate with, and those that the forms are compared on."""

    calibration: Array
    inputs: Array
    labels: Array | None = None
    targets: Array | None = None


def smooth_noise(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> Array:
    """Values in 0..1 whose neighbors are alike, as in pictures and spectrograms."""
    noise = rng.normal(0, 1, (count, *shape))
    axes = [axis for axis, extent in enumerate(noise.shape) if axis and extent > 3]
    frequencies = np.sqrt(
        sum(
            np.square(np.fft.fftfreq(noise.shape[axis])).reshape(
                [-1 if axis == other else 1 for other in range(noise.ndim)]
            )
            for axis in axes
        )
    )
    smooth = np.fft.ifftn(np.fft.fftn(noise, axes=axes) / (0.05 + frequencies), axes=axes).real
    each = tuple(range(1, noise.ndim))
    low, high = smooth.min(each, keepdims=True), smooth.max(each, keepdims=True)
    contrast = rng.uniform(0.3, 1, (count, *(1 for _ in shape)))
    level = rng.uniform(0, 1, contrast.shape) * (1 - contrast)
    return ((smooth - low) / (high - low) * contrast + level).astype(np.float32)


def data_of(parts: list[str], shape: tuple[int, ...]) -> Data:
    """The data that the command line names."""
    if len(parts) == 1:
        low, high = map(float, parts[0].split(".."))
        rng = np.random.default_rng(16)
        made = low + (high - low) * smooth_noise(rng, CALIBRATION + COMPARED, shape)
        return Data(made[:CALIBRATION], made[CALIBRATION:])
    with np.load(parts[0]) as calibration, np.load(parts[1]) as held_out:
        others = {name: held_out[name] for name in ("labels", "targets") if name in held_out}
        return Data(calibration["inputs"], held_out["inputs"], **others)


def quantized(values: Array, tensor: Tensor) -> Array:
    """Real values as the model takes them."""
    if tensor.quantization is None:
        return values
    limits = np.iinfo(tensor.dtype)
    steps = np.round(values / np.float32(tensor.quantization.scale))
    return np.clip(steps + tensor.quantization.zero_point, limits.min, limits.max).astype(
        tensor.dtype
    )


def reals(values: Array, tensor: Tensor) -> Array:
    """What outputs mean."""
    if tensor.quantization is None:
        return values.astype(np.float64)
    return (values.astype(np.float64) - tensor.quantization.zero_point) * tensor.quantization.scale


def figures(found: Array, exact: Array, data: Data) -> list[str]:
    """The cells of a row: quality, agreement with float32, SQNR."""
    quality = ""
    if data.labels is not None:
        right = int((found.argmax(-1) == data.labels).sum())
        quality = f"{right} of {len(data.labels)}, {right / len(data.labels):.2%}"
    elif data.targets is not None:
        error = np.square(found - data.targets).sum()
        quality = f"R2 {1 - error / np.square(data.targets - data.targets.mean()).sum():.4f}"
    several = exact.shape[-1] > 1 and data.targets is None
    agree = f"{(found.argmax(-1) == exact.argmax(-1)).mean():.1%}" if several else ""
    level = sqnr_of(found, exact)
    return [quality, agree, f"{level:.1f} dB" if np.isfinite(level) else ""]


def sqnr_of(found: Array, exact: Array) -> float:
    """SQNR in dB; infinite if the two are equal."""
    noise = np.square(found - exact).sum()
    return float(10 * np.log10(np.square(exact).sum() / noise)) if noise else float("inf")


def utvm(*arguments: str) -> str:
    """What the command prints on stdout."""
    command = [sys.executable, "-m", "utvm_deploy", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    return done.stdout


def write_quantized(
    path: Path, data: Data, form: str, mixed_options: list[str], target: Path
) -> None:
    """Quantize a model file to a form, as its user does."""
    samples = target.with_suffix(".npz")
    np.savez(samples, inputs=data.calibration)
    options = mixed_options if form == "mixed" else []
    line = ["quantize", str(path), "--data", str(samples), "--scheme", form, *options]
    utvm(*line, "-o", str(target))


def on_board(path: Path, graph: Graph, inputs: Array, outputs: Array, board: str) -> str:
    """For how many inputs the device answers the same bytes, and its ticks for one run."""
    compiled = utvm_deploy.compile(path, board)
    with utvm_deploy.connect(board) as device:
        try:
            model = device.load(compiled)
        except CompileError:
            return "does not fit | "
        shape = graph.tensors[graph.inputs[0]].shape
        same = sum(
            np.array_equal(np.asarray(model(x.reshape(shape))).ravel(), y.ravel())
            for x, y in zip(inputs, outputs, strict=True)
        )
    total = json.loads(utvm("profile", str(path), "--board", board, "--json", "--no-store"))
    return f"{same} of {len(inputs)} | {total['ticks']:,}"


def costly_layers(path: Path, graph: Graph, calibration: Array, scheme: str) -> str:
    """The layers whose quantization alone costs most, by the worst output's SQNR."""
    known = calibrated(opened(path), calibration)
    names = [graph.tensors[one.outputs[0]].name for one in graph.operators]
    recipes = [
        Recipe.of(
            scheme,
            operators={name: FLOAT for name in names if name != one},
            float_ends=True,
        )
        for one in names
    ]
    found = []
    for operator, result in zip(
        graph.operators, quantize_with_recipes(known, recipes), strict=True
    ):
        errors = output_errors(known.output_names, known.outputs, result.outputs)
        levels = [one.sqnr_db for one in errors if one.sqnr_db is not None]
        if levels:
            found.append(
                (min(levels), f"{operator.sources[0]} ({operator.kind}) {min(levels):.1f} dB")
            )
    return ", ".join(text for _, text in sorted(found)[:NAMED])


def rows(spec: str, args: argparse.Namespace, folder: Path) -> list[str]:
    """Print the rows of one model; what to say of forms that are below their floor."""
    board, most = args.board, args.board_samples
    mixed_options = [] if board is None else ["--board", board]
    mixed_options += [] if args.flash_budget is None else ["--flash-budget", args.flash_budget]
    below: list[str] = []
    name, *parts = spec.split(":")
    path = Path(name)
    source_data = opened(path).data
    if source_data != path.read_bytes():  # int8 weights became float32
        path = folder / path.name
        path.write_bytes(source_data)
        name = str(path)
    graph = load_model(path)
    data = data_of(parts, graph.tensors[graph.inputs[0]].shape[1:])
    exact = None
    for form in ("float32", *SCHEMES, *(("mixed",) if board is not None else ())):
        start = time.monotonic()
        if form != "float32":
            path = folder / f"{Path(name).stem}_{form}.tflite"
            write_quantized(Path(name), data, form, mixed_options, path)
            graph = load_model(path)
        took = f"{time.monotonic() - start:.1f} s" if form != "float32" else ""
        source, sink = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
        inputs = quantized(data.inputs, source)
        run = run_reference(path, [x.reshape(source.shape) for x in inputs])
        outputs = np.concatenate([one[0] for one in run.outputs])
        found = reals(outputs, sink)
        exact = found if exact is None else exact
        cells = [Path(name).stem, form, *figures(found, exact, data), took]
        cells.append(f"{path.stat().st_size:,}")
        if board is not None:
            cells.append(on_board(path, graph, inputs[:most], outputs[:most], board))
        print("| " + " | ".join(cells) + " |", flush=True)
        if form in FLOORS and sqnr_of(found, exact) < FLOORS[form]:
            worst = costly_layers(Path(name), load_model(Path(name)), data.calibration, form)
            below.append(f"{Path(name).stem} {form}: alone, these layers cost most: {worst}")
        path = Path(name)
    return below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", metavar="MODEL:...", nargs="+")
    parser.add_argument("--board")
    parser.add_argument("--flash-budget", metavar="BYTES")
    parser.add_argument("--board-samples", metavar="N", type=int)
    args = parser.parse_args()
    head = ["model", "form", "accuracy", "as float32", "SQNR", "seconds", "bytes"]
    head += [] if args.board is None else [f"equal on {args.board}", "ticks"]
    print("| " + " | ".join(head) + " |")
    print("|---|---|" + "--:|" * (len(head) - 2))
    with tempfile.TemporaryDirectory() as folder:
        below = [line for spec in args.models for line in rows(spec, args, Path(folder))]
    print("\n" + "\n".join(below) if below else "")


if __name__ == "__main__":
    main()
