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
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_command import bench
from kinds import KINDS, layers
from layer import Layer, ModelWriter
from network import Network

#: What one model may take: inputs and outputs in RAM, weights in flash.
RAM_BYTES, FLASH_BYTES = 96 * 1024, 400 * 1024


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
        m.output(layer.add_to(m, rng, layer.input_to(m, rng)))
    m.save(path)


def write_network(seed: int, path: Path) -> None:
    """A small network: a first layer, blocks of one sort or another, a classifier."""
    r = random.Random(f"network {seed}")
    edge = r.choice((24, 28, 32, 40, 48, 56, 64))
    n = Network((1, edge, edge, r.choice((1, 3))), seed)
    channels, size = r.choice((4, 6, 8, 12, 16)), r.choice((3, 3, 5))
    n.conv(channels, size, r.choice((1, 2)) if edge < 40 else 2, "RELU")
    for _ in range(r.randint(2, 5)):
        block = r.choice(("separable", "separable", "plain", "residual", "bottleneck"))
        stride = 2 if n.shape[1] > 4 and r.random() < 0.6 else 1
        if stride == 2 or n.shape[1] < 9:
            channels = min(round(channels * r.choice((1, 1.5, 2))), 96)
        if block == "separable":
            n.depthwise(r.choice((3, 3, 5)), stride)
            n.conv(channels)
        elif block == "plain":
            n.conv(channels, 3, stride, "RELU")
            if n.shape[1] > 5 and r.random() < 0.4:
                n.pool(2)
        elif block == "residual":
            start, made = n.end, n.shape[3]
            n.conv(made, 3, activation="RELU")
            n.conv(made, 3, activation="NONE")
            n.add(start)
        else:
            n.conv(n.shape[3] * r.choice((2, 3, 4)))
            n.depthwise(3, stride)
            n.conv(channels, activation="NONE")
    height = n.shape[1]
    n.layer("average pool", kernel=(height, height), stride=(height, height), padding="VALID")
    n.reshape(1, -1)
    n.layer("dense", outputs=r.randint(2, 40))
    path.write_bytes(n.finish(n.softmax()))


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
