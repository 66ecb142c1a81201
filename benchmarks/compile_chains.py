"""How the time and memory of `utvm compile` grow with the number of layers.

    python benchmarks/compile_chains.py [--board BOARD] [LAYERS...]

Each model is a chain of layers of random weights: a 1x1 convolution, a depthwise convolution, and
so on. No two layers have the same shape, so each layer needs a kernel of its own. The model is
compiled for the board by the command line, in a process of its own. A line tells its CPU seconds,
its largest resident memory, and the wall-clock seconds of each stage. The last two columns compare
CPU time and memory per layer with the line above: 1.0 or less means that they grow no faster than
the layers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from tflite_writer import ModelWriter  # noqa: E402

LAYERS = (20, 80, 320, 1000)
SIDE = 6
SCALE = 0.05
#: Numbers of channels: each ordered pair is another 1x1 convolution.
CHANNELS = range(4, 44)
#: Windows of depthwise convolutions: with each number of channels another one.
WINDOWS = tuple((rows, columns) for rows in range(1, 6) for columns in range(1, 6))


@dataclass(frozen=True)
class Compilation:
    """What one compilation took."""

    layers: int
    cpu_s: float
    memory_mb: float
    stages: dict[str, float]


def main() -> None:
    """Print one line for each number of layers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layers", nargs="*", type=int, default=LAYERS)
    parser.add_argument("--board", default="mps2_an500")
    args = parser.parse_args()
    before: Compilation | None = None
    for count in args.layers:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / f"chain_{count}.tflite"
            model.write_bytes(chain(count))
            found = compilation(model, args.board)
        if before is None:
            stages = " ".join(f"{stage:>9}" for stage in found.stages)
            print(f"layers   cpu s      MB {stages}  cpu/layer  MB/layer", flush=True)
        print(line(found, before), flush=True)
        before = found


def line(found: Compilation, before: Compilation | None) -> str:
    """A row of the table."""
    stages = " ".join(f"{seconds:9.2f}" for seconds in found.stages.values())
    text = f"{found.layers:6} {found.cpu_s:7.1f} {found.memory_mb:7.0f} {stages}"
    if before is not None:
        layers = found.layers / before.layers
        text += f" {found.cpu_s / before.cpu_s / layers:10.2f}"
        text += f" {found.memory_mb / before.memory_mb / layers:9.2f}"
    return text


def chain(count: int) -> bytes:
    """A model of ``count`` layers, each of another shape; long chains are mixed as short ones."""
    rng = np.random.default_rng(7)
    unused = {number: rng.permutation(CHANNELS).tolist() for number in CHANNELS}
    windows = {number: rng.permutation(WINDOWS).tolist() for number in CHANNELS}
    writer = ModelWriter()
    inputs = CHANNELS[0]
    end = writer.input((1, SIDE, SIDE, inputs), SCALE, -3)
    for index in range(count):
        if index % 2 == 0:
            outputs = unused[inputs].pop()
            weights = rng.integers(-127, 128, (outputs, 1, 1, inputs)).astype(np.int8)
            convolution, inputs = writer.conv2d, outputs
        else:
            window = windows[inputs].pop()
            weights = rng.integers(-127, 128, (1, *window, inputs)).astype(np.int8)
            convolution = writer.depthwise_conv2d
        bias = rng.integers(-2000, 2000, inputs).astype(np.int32)
        scales = rng.uniform(0.005, 0.015, inputs).tolist()
        end = convolution(end, weights, bias, weight_scale=scales, scale=SCALE, activation="RELU6")
    writer.output(end)
    return writer.to_bytes()


def compilation(model: Path, board: str) -> Compilation:
    """Compile a model file in a process of its own."""
    argv = [sys.executable, "-m", "utvm_deploy", "compile", str(model), "--board", board, "--json"]
    argv += ["-o", str(model.with_suffix(".tar"))]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert child.stdout is not None
    told = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"utvm compile {model.name} failed: {told}")
    result = json.loads(told)
    layers = len(result["layers"])
    return Compilation(
        layers, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, result["seconds"]
    )


if __name__ == "__main__":
    main()
