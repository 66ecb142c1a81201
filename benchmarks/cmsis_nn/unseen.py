"""Our kernels beside CMSIS-NN's on shapes drawn at random: where do we win least?

    python benchmarks/cmsis_nn/unseen.py --board BOARD --cmsis-nn DIR [KIND...]

Layers of every kind are drawn by a seed and packed into models that fit the board, each layer with
an input of its own; `utvm bench` compares the engines. The table begins with the smallest ratio.
``--networks`` draws whole models instead. ``--keep FOLDER`` keeps models and results, and
``--baseline RESULT.json`` of an earlier run adds a column.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from tflite_writer import ModelWriter  # noqa: E402

#: What one model may take: inputs and outputs in RAM, weights in flash.
RAM_BYTES, FLASH_BYTES = 96 * 1024, 400 * 1024
#: Of one layer: so that it takes about a second at most on the emulated board.
MOST_MACS = 2_500_000
LARGEST_BYTES = 48 * 1024

Pair = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """One layer's shape; ``outputs`` 0: as many as inputs."""

    kind: str
    shape: tuple[int, ...]
    outputs: int = 0
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    dilation: int = 1
    padding: str = "SAME"
    activation: str = "NONE"
    groups: int = 1

    @property
    def made(self) -> int:
        """Channels of the output."""
        return self.outputs or self.shape[-1]

    @property
    def output_shape(self) -> tuple[int, ...]:
        if self.kind == "dense":
            return (self.shape[0], self.outputs)
        if self.kind == "transposed":
            places = (
                size * step if self.padding == "SAME" else (size - 1) * step + taps
                for size, taps, step in zip(self.shape[1:3], self.kernel, self.stride, strict=True)
            )
            return (1, *places, self.made)
        sides = []
        for size, taps, step in zip(self.shape[1:3], self.kernel, self.stride, strict=True):
            inside = size if self.padding == "SAME" else size - (taps - 1) * self.dilation
            sides.append(-(-inside // step))
        return (1, *sides, self.made)

    @property
    def weights(self) -> int:
        if self.kind == "dense":
            return self.shape[1] * self.outputs
        if self.kind.endswith("pool"):
            return 0
        inputs = 1 if self.kind == "depthwise" else self.shape[3] // self.groups
        return math.prod(self.kernel) * self.made * inputs

    @property
    def fits(self) -> bool:
        """Whether it is a layer at all, and no larger than wanted."""
        places = math.prod(self.output_shape[:-1])
        return (
            min(self.output_shape) > 0
            and self.bytes <= LARGEST_BYTES
            and self.weights <= FLASH_BYTES // 2
            and places * self.weights <= MOST_MACS
        )

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) + math.prod(self.output_shape)

    @property
    def label(self) -> str:
        if self.kind == "dense":
            return f"dense {self.shape[0]} x {self.shape[1]} -> {self.outputs}"
        _, height, width, channels = self.shape
        dilation = f" d{self.dilation}" if self.dilation > 1 else ""
        dilation += f" g{self.groups}" if self.groups > 1 else ""
        return (
            f"{self.kind} {self.kernel[0]}x{self.kernel[1]} s{self.stride[0]}x{self.stride[1]}"
            f"{dilation} {self.padding.lower()}, {height}x{width}x{channels} -> {self.made}"
        )

    def add_to(self, m: ModelWriter, rng: np.random.Generator, x: int) -> int:
        """The layer in a model; quantized so that no output is always at its limit."""
        if self.kind.endswith("pool"):
            pool = m.max_pool if self.kind == "max pool" else m.average_pool
            return pool(x, self.kernel, stride=self.stride, padding=self.padding)
        taps = self.weights // self.made
        shape: tuple[int, ...] = (self.outputs, self.shape[1] if self.kind == "dense" else 0)
        if self.kind in ("conv", "transposed"):
            shape = (self.outputs, *self.kernel, self.shape[3] // self.groups)
        elif self.kind == "depthwise":
            shape = (1, *self.kernel, self.made)
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        bias = rng.integers(-2000, 2000, self.made).astype(np.int32)
        options: dict[str, Any] = {
            "scale": m.tensors[x].scales[0] * 0.01 * 75 * math.sqrt(taps),
            "zero_point": int(rng.integers(-20, 20)),
            "activation": self.activation,
        }
        if self.kind == "dense":
            return m.fully_connected(x, weights, bias, **options)
        scales = [float(s) for s in rng.uniform(0.005, 0.015, self.made)]
        if self.kind == "transposed":
            return self._add_transposed(m, x, weights, bias, scales, options["scale"])
        options |= {"stride": self.stride, "dilation": self.dilation, "padding": self.padding}
        convolution = m.conv2d if self.kind == "conv" else m.depthwise_conv2d
        return convolution(x, weights, bias, weight_scale=scales, **options)

    def _add_transposed(
        self,
        m: ModelWriter,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray,
        scales: list[float],
        scale: float,
    ) -> int:
        bias_scales = [float(scale) * m.tensors[x].scales[0] for scale in scales]
        inputs = [m.constant(np.array(self.output_shape, np.int32))]
        inputs += [m.constant(weights, scales, axis=0), x, m.constant(bias, bias_scales)]
        fields = {"Padding": int(self.padding == "VALID")}
        fields |= {"StrideH": self.stride[0], "StrideW": self.stride[1]}
        made = m.tensor(self.output_shape, "int8", scale, 5)
        m.operator("TRANSPOSE_CONV", inputs, [made], ("TransposeConvOptions", fields))
        return made


# What is drawn of each kind


def _conv(r: random.Random) -> Layer:
    """Any convolution."""
    edge = r.randint(3, 40)
    shape = (1, edge, max(1, edge + r.randint(-4, 4)), r.randint(1, 70))
    kernel = r.randint(1, 7)
    other = kernel if r.random() < 0.7 else r.randint(1, 7)
    strides = ((1, 1),) * 4 + ((2, 2),) * 2 + ((3, 3), (1, 2), (2, 1))
    dilation = r.choice((1,) * 7 + (2, 3))
    stride = (1, 1) if dilation > 1 else r.choice(strides)
    return Layer("conv", shape, r.randint(1, 70), (kernel, other), stride, dilation, _padding(r))


def _usual(r: random.Random) -> Layer:
    """3x3 and 5x5 with channels in multiples of eight."""
    edge = r.choice((4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32))
    kernel, stride = r.choice((3, 3, 5)), r.choice((1, 1, 2))
    shape = (1, edge, edge, 8 * r.randint(1, 12))
    return Layer("conv", shape, 8 * r.randint(1, 12), (kernel, kernel), (stride, stride))


def _first(r: random.Random) -> Layer:
    """Few channels of a large image."""
    edge, kernel, stride = (
        r.choice((28, 32, 48, 64, 80, 96)),
        r.choice((3, 3, 5, 7)),
        r.choice((1, 2)),
    )
    shape = (1, edge, edge, r.choice((1, 1, 2, 3, 3, 4)))
    outputs = r.choice((4, 6, 8, 10, 16, 24, 32))
    return Layer("conv", shape, outputs, (kernel, kernel), (stride, stride), padding=_padding(r))


def _few(r: random.Random) -> Layer:
    """Few channels in and out."""
    edge, kernel = r.randint(16, 60), r.choice((1, 3, 3, 5))
    shape = (1, edge, edge, r.randint(1, 8))
    return Layer("conv", shape, r.randint(1, 8), (kernel, kernel))


def _pointwise(r: random.Random) -> Layer:
    edge, stride = r.randint(1, 32), r.choice((1, 1, 1, 2))
    shape = (1, edge, edge, r.randint(1, 160))
    return Layer("conv", shape, r.randint(1, 160), stride=(stride, stride))


def _tiny(r: random.Random) -> Layer:
    """Many channels of a tiny image."""
    edge, kernel = r.randint(1, 4), r.choice((1, 1, 3))
    shape = (1, edge, edge, 16 * r.randint(6, 32))
    return Layer("conv", shape, 16 * r.randint(2, 24), (kernel, kernel))


def _temporal(r: random.Random) -> Layer:
    """Along one axis."""
    length, taps, stride = r.randint(12, 128), r.randint(2, 13), r.choice((1, 1, 2))
    dilation = r.choice((1, 1, 2)) if stride == 1 else 1
    channels, outputs = r.randint(1, 64), r.randint(1, 64)
    if r.random() < 0.5:
        shape, kernel, strides = (1, 1, length, channels), (1, taps), (1, stride)
    else:
        shape, kernel, strides = (1, length, 1, channels), (taps, 1), (stride, 1)
    return Layer("conv", shape, outputs, kernel, strides, dilation, _padding(r))


def _depthwise(r: random.Random) -> Layer:
    edge, kernel, stride = r.randint(2, 48), r.choice((3, 3, 3, 5, 7, 2, 4)), r.choice((1, 1, 2))
    channels = r.choice((r.randint(1, 70), 8 * r.randint(1, 20)))
    stride = stride if r.random() < 0.9 else 3
    shape = (1, edge, max(1, edge + r.randint(-3, 3)), channels)
    return Layer("depthwise", shape, 0, (kernel, kernel), (stride, stride), padding=_padding(r))


def _depthwise_line(r: random.Random) -> Layer:
    """Depthwise along one axis, dilated or not; or a window that is no square."""
    length, taps = r.randint(12, 128), r.randint(2, 13)
    channels = r.randint(1, 96)
    dilation = r.choice((1, 1, 1, 2))
    if r.random() < 0.4:
        return Layer("depthwise", (1, 1, length, channels), 0, (1, taps), (1, 1), dilation)
    if r.random() < 0.7:
        return Layer("depthwise", (1, length, 1, channels), 0, (taps, 1), (1, 1), dilation)
    edge, kernel = r.randint(4, 24), (r.randint(1, 5), r.randint(1, 5))
    return Layer("depthwise", (1, edge, edge, channels), 0, kernel, (1, 1), dilation)


def _multiplier(r: random.Random) -> Layer:
    """Depthwise with several outputs for each channel."""
    edge, kernel, stride = r.randint(4, 48), r.choice((3, 3, 5)), r.choice((1, 2))
    channels = r.choice((1, 1, 2, 3, 4, 8, 12, 16))
    outputs = channels * r.choice((2, 3, 4, 8))
    return Layer(
        "depthwise", (1, edge, edge, channels), outputs, (kernel, kernel), (stride, stride)
    )


def _grouped(r: random.Random) -> Layer:
    """Channels in groups: blocks of 3x3, pointwise, or along one axis."""
    groups, kernel = r.choice((2, 2, 3, 4, 4, 8, 16, 32)), r.choice((1, 1, 3, 3, 5))
    channels, outputs = groups * r.randint(2, 24), groups * r.randint(1, 24)
    length, edge = r.randint(12, 128), r.randint(3, 28)
    if r.random() < 0.2:
        return Layer("conv", (1, length, 1, channels), outputs, (kernel, 1), groups=groups)
    stride, dilation = r.choice(((1, 1), (1, 1), (2, 1), (1, 2) if kernel > 1 else (1, 1)))
    kernels, strides = (kernel, kernel), (stride, stride)
    shape = (1, edge, edge, channels)
    return Layer("conv", shape, outputs, kernels, strides, dilation, _padding(r), groups=groups)


def _transposed(r: random.Random) -> Layer:
    """What makes an image larger."""
    edge, kernel, stride = r.randint(2, 24), r.randint(2, 5), r.choice((1, 2, 2, 2, 3, 4))
    shape = (1, edge, edge, r.choice((r.randint(1, 48), 8 * r.randint(1, 8))))
    outputs = r.choice((r.randint(1, 32), 8 * r.randint(1, 4)))
    return Layer("transposed", shape, outputs, (kernel, kernel), (stride, stride), 1, _padding(r))


def _dense(r: random.Random) -> Layer:
    inputs, outputs = round(2 ** r.uniform(2, 11)), round(2 ** r.uniform(0.5, 10))
    return Layer("dense", (r.choice((1, 1, 1, 1, 3)), inputs), outputs)


def _classifier(r: random.Random) -> Layer:
    """Few outputs."""
    return Layer("dense", (1, 8 * r.randint(1, 64)), r.randint(1, 20))


def _pool(r: random.Random) -> Layer:
    edge, kernel = r.randint(2, 32), r.randint(2, 5)
    if r.random() < 0.25:  # the whole image
        edge = kernel = r.randint(2, 12)
    stride = r.choice((kernel, kernel, 1, 2))
    shape = (1, edge, edge, r.choice((r.randint(1, 70), 8 * r.randint(1, 16))))
    kind = r.choice(("max pool", "average pool"))
    return Layer(kind, shape, 0, (kernel, kernel), (stride, stride), padding=_padding(r))


def _padding(r: random.Random) -> str:
    return r.choice(("SAME", "SAME", "VALID"))


KINDS: dict[str, Callable[[random.Random], Layer]] = {
    "conv": _conv,
    "usual": _usual,
    "first": _first,
    "few": _few,
    "pointwise": _pointwise,
    "tiny": _tiny,
    "temporal": _temporal,
    "depthwise": _depthwise,
    "line": _depthwise_line,
    "multiplier": _multiplier,
    "grouped": _grouped,
    "transposed": _transposed,
    "dense": _dense,
    "classifier": _classifier,
    "pool": _pool,
}


def layers(kind: str, seed: int, count: int) -> Iterator[Layer]:
    """So many layers of a kind that fit."""
    r = random.Random(f"{kind} {seed}")
    while count:
        layer = KINDS[kind](r)
        if layer.fits:
            count -= 1
            yield layer


def packed(found: Sequence[Layer]) -> Iterator[list[Layer]]:
    """Layers that fit one model, again and again."""
    some: list[Layer] = []
    for layer in found:
        together = [*some, layer]
        too_large = sum(one.bytes for one in together) > RAM_BYTES
        if some and (too_large or sum(one.weights for one in together) > FLASH_BYTES):
            yield some
            some = []
        some.append(layer)
    if some:
        yield some


def write_layers(some: Sequence[Layer], path: Path) -> None:
    """A model in which all layers stand side by side."""
    m, rng = ModelWriter(), np.random.default_rng(len(some))
    for layer in some:
        x = m.input(layer.shape, 0.05, int(rng.integers(-20, 20)))
        m.output(layer.add_to(m, rng, x))
    m.save(path)


def write_network(seed: int, path: Path) -> None:
    """A small network: a first layer, blocks of one sort or another, a classifier."""
    r, rng, m = random.Random(f"network {seed}"), np.random.default_rng(seed), ModelWriter()
    edge = r.choice((24, 28, 32, 40, 48, 56, 64))
    x = m.input((1, edge, edge, r.choice((1, 3))), 0.05, -3)

    def append(kind: str, x: int, **options: Any) -> int:
        layer = Layer(kind, m.tensors[x].shape, **options)
        return layer.add_to(m, rng, x)

    def square(size: int) -> Pair:
        return (size, size)

    channels = r.choice((4, 6, 8, 12, 16))
    kernel, step = square(r.choice((3, 3, 5))), square(r.choice((1, 2)) if edge < 40 else 2)
    x = append("conv", x, outputs=channels, kernel=kernel, stride=step, activation="RELU")
    for _ in range(r.randint(2, 5)):
        block = r.choice(("separable", "separable", "plain", "residual", "bottleneck"))
        height = m.tensors[x].shape[1]
        stride = square(2 if height > 4 and r.random() < 0.6 else 1)
        if stride[0] == 2 or height < 9:
            channels = min(round(channels * r.choice((1, 1.5, 2))), 96)
        if block == "separable":
            size = square(r.choice((3, 3, 5)))
            x = append("depthwise", x, kernel=size, stride=stride, activation="RELU6")
            x = append("conv", x, outputs=channels, activation="RELU6")
        elif block == "plain":
            x = append("conv", x, outputs=channels, kernel=(3, 3), stride=stride, activation="RELU")
            if m.tensors[x].shape[1] > 5 and r.random() < 0.4:
                x = append("max pool", x, kernel=(2, 2), stride=(2, 2), padding="VALID")
        elif block == "residual":
            made = m.tensors[x].shape[3]
            y = append("conv", x, outputs=made, kernel=(3, 3), activation="RELU")
            x = m.add(x, append("conv", y, outputs=made, kernel=(3, 3)), scale=0.3)
        else:
            inside = m.tensors[x].shape[3] * r.choice((2, 3, 4))
            y = append("conv", x, outputs=inside, activation="RELU6")
            y = append("depthwise", y, kernel=(3, 3), stride=stride, activation="RELU6")
            x = append("conv", y, outputs=channels)
    height = m.tensors[x].shape[1]
    x = append("average pool", x, kernel=square(height), stride=square(height), padding="VALID")
    x = append("dense", m.reshape(x, (1, -1)), outputs=r.randint(2, 40))
    m.output(m.softmax(x))
    m.save(path)


def bench(
    paths: Sequence[Path], board: str, cmsis_nn: Path, records: Path | None = None
) -> list[dict[str, Any]]:
    """What `utvm bench --json` says of each model."""
    command = [sys.executable, "-m", "utvm_deploy", "bench", *map(str, paths), "--json"]
    command += ["--board", board, "--cmsis-nn", str(cmsis_nn)]
    command += ["--records", str(records)] if records else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    found: list[dict[str, Any]] = json.loads(done.stdout)["models"]
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", metavar="KIND", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--board", required=True)
    parser.add_argument("--cmsis-nn", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=8, help="layers of each kind, or networks")
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--baseline", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        rows = list(_networks(options, folder) if options.networks else _layers(options, folder))
        (folder / "result.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    earlier = {}
    if options.baseline:
        told = json.loads(options.baseline.read_text(encoding="utf-8"))
        earlier = {row["label"]: row["ours"] for row in told}
    print("| | ours | CMSIS-NN | ratio | core | before | kernel |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for row in sorted(rows, key=lambda row: row["ratio"] or 99.0):
        before = earlier.get(row["label"])
        change = "" if before is None else f"{100 * (row['ours'] / before - 1):+.1f} %"
        print(
            f"| {row['label']} | {row['ours']:,} | {row['theirs'] or 0:,} | "
            f"{row['ratio'] or 0:.2f} | {row['core'] or 0:.2f} | {change} | {row['kernel']} |"
        )
    known = [row for row in rows if row["ratio"]]
    mean = math.exp(sum(math.log(row["ratio"]) for row in known) / len(known))
    below = sum(row["ratio"] < 1.1 for row in known)
    print(f"\n{len(known)} compared, geometric mean {mean:.3f}, {below} below 1.1")


def _networks(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    paths = []
    for number in range(options.each):
        paths.append(folder / f"network_{options.seed}_{number}.tflite")
        write_network(1000 * options.seed + number, paths[-1])
    for model in bench(paths, options.board, options.cmsis_nn):
        unit = model["figures"][0]
        yield _row(model["name"], model, unit, f"{len(model['layers'])} layers")


def _layers(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    found = [
        layer
        for kind in options.kinds or KINDS
        for layer in layers(kind, options.seed, options.each)
    ]
    models = list(packed(found))
    paths = []
    for number, some in enumerate(models):
        paths.append(folder / f"unseen_{number}.tflite")
        write_layers(some, paths[-1])
    for some, model in zip(models, bench(paths, options.board, options.cmsis_nn), strict=True):
        unit = model["figures"][0]
        for layer, measured in zip(some, model["layers"], strict=True):
            yield _row(layer.label, measured, unit, measured["kernel"])


def _row(label: str, item: dict[str, Any], unit: str, kernel: str) -> dict[str, Any]:
    return {
        "label": label,
        "ours": item["ours"][unit],
        "theirs": (item["theirs"] or {}).get(unit),
        "ratio": item.get("ratio"),
        "core": item.get("ratio_core"),
        "differing": item.get("differing_bytes"),
        "kernel": kernel,
    }


if __name__ == "__main__":
    main()
