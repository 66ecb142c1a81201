"""What `utvm compile` takes: the tables of docs/internals/compile-time.md.

    python benchmarks/compile_time.py [--write] [--only TEXT] [--table models|large]

Each model is compiled in a process of its own, after TVM was loaded and a model of one layer was
compiled. The figures are CPU seconds beyond that, and for large models the process's memory. For
one model the page also has how many functions are called: a count repeats, and a time depends on
the computer.
`tests/compiler/test_compile_time.py` counts them again. The shared models are in the folder that
UTVM_SHARED names; where it is absent, their lines are left out.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

from compile_chains import chain  # noqa: E402
from tflite_writer import ModelWriter  # noqa: E402

PAGE = ROOT / "docs" / "internals" / "compile-time.md"
SHARED = Path(os.environ.get("UTVM_SHARED", ROOT.parent / "shared")) / "models"
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"
SHARED_MODELS = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8")
CHAINS = (16, 64, 256)
#: Large models for LARGE_BOARD, levels, and budgets of RAM in bytes.
LARGE_BOARD = "a Cortex-M7 with 64 MiB of flash and 32 MiB of RAM"
LARGE = (
    *(("resnet_50", "time", 0), ("resnet_50", "time", 1_200_000), ("resnet_50", "ram", 0)),
    *(("mobilenet_v2_1_224", "time", 0), ("mobilenet_v2_1_224", "ram", 0)),
    *(("chain_64", "time", 0), ("chain_256", "time", 0), ("chain_1024", "time", 0)),
    *(("chain_64", "ram", 0), ("chain_256", "ram", 0)),
)
#: The model that the test counts again: it is in the repository, and takes about a second.
COUNTED, COUNTED_FOR = "cifar10_cnn", "at level time for mps2_an500,"
#: Board and level of each column.
COLUMNS = (
    ("host", "time"),
    ("mps2_an386", "time"),
    ("mps2_an500", "time"),
    ("mps2_an500", "ram"),
)


@dataclass(frozen=True)
class Cost:
    """What a compilation takes beyond that of a model of one layer."""

    cpu_s: float
    thousand_calls: int  # of functions; 0: not counted
    memory_mb: float  # of the whole process, with Python and TVM


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--only", default="", help="models whose name has this text")
    parser.add_argument("--table", choices=("models", "large"), help="one of the two tables")
    parser.add_argument("--one", nargs=5, metavar=("MODEL", "BOARD", "LEVEL", "RAM", "COUNTS"))
    args = parser.parse_args()
    if args.one:
        model, board, level, ram, counts = args.one
        cost = here(Path(model), board, level, int(ram), counts=counts == "1")
        print(json.dumps(asdict(cost)))
        return
    for name, table in (("models", models_table), ("large", large_table)):
        if args.table in (None, name):
            lines = table(args.only)
            if args.write:
                begin, end = BEGIN.format(name), END.format(name)
                before, _, rest = PAGE.read_text().partition(begin)
                _, _, after = rest.partition(end)
                PAGE.write_text("\n".join([before + begin, *lines, end + after]))


def models_table(only: str) -> list[str]:
    """The lines of the table of models."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(path) for path in models(Path(folder)) if only in path.stem]
    titles = " | ".join(f"{board} {level}" for board, level in COLUMNS)
    lines = [f"| model | {titles} |", "|---" + "|--:" * len(COLUMNS) + "|", *rows]
    counted = in_process(counted_model(), "mps2_an500", "time", counts=True)
    return [
        *lines,
        "",
        f"{COUNTED}, {COUNTED_FOR} calls {counted.thousand_calls:,} thousand functions.",
    ]


def large_table(only: str) -> list[str]:
    """The lines of the table of large models."""
    made = {"resnet_50": resnet_50, "mobilenet_v2_1_224": lambda: mobilenet_v2(1.0, 224)}
    lines = ["| model | level | CPU s | MB |", "|---|---|--:|--:|"]
    with tempfile.TemporaryDirectory() as folder:
        for name, level, ram in LARGE:
            if only not in name:
                continue
            path = Path(folder) / f"{name}.tflite"
            kind, _, count = name.rpartition("_")
            path.write_bytes(chain(int(count)) if kind == "chain" else made[name]())
            cost = in_process(path, "large", level, ram)
            budget = f", {ram:,} bytes of RAM" if ram else ""
            lines.append(f"| {name} | {level}{budget} | {cost.cpu_s:.1f} | {cost.memory_mb:.0f} |")
            print(lines[-1], flush=True)
    return lines


def row(model: Path) -> str:
    """A line of the table of models, which is printed, too; chains have level time only."""
    found = [
        in_process(model, board, level) if level == "time" or "chain" not in model.stem else None
        for board, level in COLUMNS
    ]
    cells = [f"{one.cpu_s:.1f}" if one is not None else "" for one in found]
    line = " | ".join([f"| {model.stem}", *cells]) + " |"
    print(line, flush=True)
    return line


def in_process(model: Path, board: str, level: str, ram: int = 0, *, counts: bool = False) -> Cost:
    """What a compilation takes, in a process of its own."""
    argv = [sys.executable, __file__, "--one", str(model), board, level, str(ram), str(int(counts))]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"{model.stem} for {board} failed: {done.stderr}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def here(model: Path, board: str, level: str, ram: int, *, counts: bool) -> Cost:
    """What a compilation takes in this process."""
    from utvm_deploy.base.without_torch import without_torch
    from utvm_deploy.boards.board import load_board
    from utvm_deploy.compiler.budgets import Budget
    from utvm_deploy.compiler.options import CompileOptions, Objective
    from utvm_deploy.compiler.stages.pipeline import compile_model

    with without_torch():
        importlib.import_module("tvm")
    target = load_board("mps2_an500" if board == "large" else board)
    if board == "large":
        sizes = {"flash": {"size": 64 << 20}, "ram": {"address": 0x6000_0000, "size": 32 << 20}}
        memory = tuple(replace(one, **sizes.get(one.name, {})) for one in target.memory)
        target = replace(target, name=board, memory=memory)
    with tempfile.TemporaryDirectory() as folder:
        first = ModelWriter()
        first.output(first.softmax(first.input((1, 4))))
        compile_model(
            first.save(Path(folder) / "first.tflite"),
            target,
            CompileOptions(objective=Objective(level)),
        )
    budget = Budget(ram=ram) if ram else Budget()
    options = CompileOptions(objective=Objective(level), budget=budget)
    profile = cProfile.Profile()
    begun = time.process_time()
    if counts:
        profile.enable()
    compile_model(model, target, options)
    profile.disable()
    taken = time.process_time() - begun
    calls = pstats.Stats(profile).total_calls if counts else 0  # type: ignore[attr-defined]
    most_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Cost(taken, round(calls / 1000), most_kb / 1024)


def counted_model() -> Path:
    return ROOT / "models" / f"{COUNTED}.tflite"


def models(folder: Path) -> Iterator[Path]:
    """The shared models, those of the repository, and those that are written here."""
    for name in SHARED_MODELS:
        if (SHARED / f"{name}.tflite").is_file():
            yield SHARED / f"{name}.tflite"
    yield counted_model()
    for name, width, side in (("mobilenet_v2_035_96", 0.35, 96), ("mobilenet_v2_1_224", 1.0, 224)):
        path = folder / f"{name}.tflite"
        path.write_bytes(mobilenet_v2(width, side))
        yield path
    for count in CHAINS:
        path = folder / f"chain_{count}.tflite"
        path.write_bytes(chain(count))
        yield path


#: Of each group of blocks: how much wider the inside is, output channels, blocks, first stride.
BLOCKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def mobilenet_v2(width: float, side: int) -> bytes:
    """The layers of MobileNetV2 with random weights."""
    net = _Net()
    channels = _eighths(32 * width)
    x = net.convolution(net.writer.input((1, side, side, 3), 1 / 128), 3, channels, 3, 2)
    side = -(-side // 2)
    for wider, outputs, count, first in BLOCKS:
        outputs = _eighths(outputs * width)
        for stride in (first, *[1] * (count - 1)):
            inside, y = channels * wider, x
            if wider > 1:
                y = net.convolution(y, channels, inside)
            y = net.convolution(net.depthwise(y, inside, stride), inside, outputs, is_cut=False)
            side = -(-side // stride)
            is_same = stride == 1 and channels == outputs
            x, channels = net.writer.add(x, y, scale=0.06) if is_same else y, outputs
    return net.classify(net.convolution(x, channels, 1280), 1280, side)


#: Of each stage of ResNet-50: channels of the 3x3 convolutions, blocks, first stride.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def resnet_50() -> bytes:
    """The layers of ResNet-50 on 224x224 with random weights: 25.5 million of them."""
    net = _Net()
    channels, side = 64, 56
    x = net.convolution(net.writer.input((1, 224, 224, 3), 1 / 128), 3, channels, 7, 2)
    x = net.writer.max_pool(x, (3, 3), stride=(2, 2))
    for inside, count, first in STAGES:
        for stride in (first, *[1] * (count - 1)):
            y = net.convolution(x, channels, inside)
            y = net.convolution(y, inside, inside, 3, stride)
            y = net.convolution(y, inside, 4 * inside, is_cut=False)
            if stride > 1 or channels != 4 * inside:
                x = net.convolution(x, channels, 4 * inside, 1, stride, is_cut=False)
            channels, side = 4 * inside, side // stride
            x = net.writer.add(x, y, scale=0.06, activation="RELU")
    return net.classify(x, channels, side)


def _eighths(channels: float) -> int:
    """As MobileNet rounds its channels: to eights, and by no more than a tenth down."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


class _Net:
    """Writes convolutions of random weights."""

    def __init__(self) -> None:
        self.writer, self._rng = ModelWriter(), np.random.default_rng(1)

    def weights(self, *shape: int) -> np.ndarray:
        return self._rng.integers(-127, 128, shape).astype(np.int8)

    def bias(self, count: int) -> np.ndarray:
        return self._rng.integers(-2000, 2000, count).astype(np.int32)

    def _scales(self, count: int) -> Sequence[float]:
        return [float(scale) for scale in self._rng.uniform(0.005, 0.015, count)]

    def convolution(
        self, x: int, inputs: int, outputs: int, side: int = 1, stride: int = 1, is_cut: bool = True
    ) -> int:
        """A CONV_2D; with RELU6 if it is cut."""
        filters = self.weights(outputs, side, side, inputs)
        scales = self._scales(outputs)
        kept = {"activation": "RELU6", "scale": 6 / 255, "zero_point": -128} if is_cut else {}
        return self.writer.conv2d(
            x, filters, self.bias(outputs), weight_scale=scales, stride=(stride, stride),
            padding="SAME", **kept,
        )  # fmt: skip

    def classify(self, x: int, channels: int, side: int) -> bytes:
        """The model that ends in a mean of the image and 1000 classes."""
        x = self.writer.reshape(
            self.writer.average_pool(x, (side, side), padding="VALID"), (1, channels)
        )
        dense = self.weights(1000, channels)
        self.writer.output(self.writer.fully_connected(x, dense, self.bias(1000)))
        return self.writer.to_bytes()

    def depthwise(self, x: int, channels: int, stride: int) -> int:
        """A DEPTHWISE_CONV_2D of 3x3."""
        return self.writer.depthwise_conv2d(
            x, self.weights(1, 3, 3, channels), self.bias(channels),
            weight_scale=self._scales(channels), stride=(stride, stride), padding="SAME",
            activation="RELU6", scale=6 / 255, zero_point=-128,
        )  # fmt: skip


if __name__ == "__main__":
    main()
