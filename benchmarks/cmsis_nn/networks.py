"""Networks that nobody tuned for, on both engines: ratios, the layers that gain least.

    python benchmarks/cmsis_nn/networks.py --board BOARD --cmsis-nn DIR [--models DIR] [NAME...]

Those of random weights are made here. The others are files of other people: ``--models`` says where
they are, and what is missing is skipped. ``--records`` compiles ours with records of the user's
own, ``--keep FOLDER`` keeps the models and what `utvm bench --json` said of them. ``--write`` keeps
the figures in docs/reference/network-figures.csv, and writes the tables of the page from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import network_table
from bench_command import bench
from network import Network


def mobilenet_v2() -> bytes:
    """Inverted residuals, width 0.35, on 80x80."""
    stages = ((8, 2, 2), (16, 3, 2), (24, 3, 2), (32, 2, 1), (56, 2, 2))
    return _residuals(80, stages, 224)


def mobilenet_v2_of_96() -> bytes:
    """All of MobileNetV2 0.35 on 96x96, with ten classes: 17 inverted residuals."""
    stages = ((8, 2, 2), (16, 3, 2), (24, 4, 2), (32, 3, 1), (56, 3, 2), (112, 1, 1))
    return _residuals(96, stages, 1280)


def _residuals(side: int, stages: Sequence[tuple[int, int, int]], last: int) -> bytes:
    """Stages of inverted residuals (channels, count, first stride) on an image of that side."""
    n = Network((1, side, side, 3))
    n.conv(16, 3, 2)
    n.depthwise(3)
    n.conv(8, activation="NONE")
    for channels, count, stride in stages:
        for number in range(count):
            _inverted(n, channels, 6, 3, stride if number == 0 else 1)
    n.conv(last)
    return n.classify(10)


def fd_mobilenet() -> bytes:
    """FD-MobileNet 0.25 on 128x128, with five classes: 125,477 weights and biases."""
    strides = ((16, 2), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 4, (256, 1))
    return _separable(128, strides, 5)


def mobilenet_v1() -> bytes:
    """MobileNetV1 0.25 on 96x96, with two classes: 13 separable convolutions."""
    strides = (
        *((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5),
        *((256, 2), (256, 1)),
    )
    return _separable(96, strides, 2, ends_at_six=True)


def _separable(
    side: int, strides: Sequence[tuple[int, int]], classes: int, *, ends_at_six: bool = False
) -> bytes:
    """Separable convolutions (channels, stride) on an image of that side."""
    n = Network((1, side, side, 3), ends_at_six=ends_at_six)
    n.conv(8, 3, 2)
    for channels, stride in strides:
        n.depthwise(3, stride)
        n.conv(channels)
    return n.classify(classes)


def _inverted(n: Network, channels: int, expand: int, size: int, stride: int) -> None:
    start, made = n.end, n.shape[3]
    n.conv(made * expand)
    n.depthwise(size, stride)
    n.conv(channels, activation="NONE")
    if stride == 1 and made == channels:
        n.add(start)


def u_net() -> bytes:
    """An encoder and a decoder with skips between them, on 48x48."""
    n = Network((1, 48, 48, 1))
    skips = []
    for channels in (8, 16, 24):
        n.conv(channels, 3, activation="RELU")
        skips.append(n.conv(channels, 3, activation="RELU"))
        n.pool(2)
    n.conv(48, 3, activation="RELU")
    n.conv(48, 3, activation="RELU")
    for channels in (24, 16, 8):
        n.up(channels)
        n.concatenate(skips.pop())
        n.conv(channels, 3, activation="RELU")
        n.conv(channels, 3, activation="RELU")
    n.conv(2, activation="NONE")
    return n.finish(n.softmax())


def efficientnet() -> bytes:
    """Inverted residuals with squeeze and excitation, windows of 3 and 5, on 64x64."""
    n = Network((1, 64, 64, 3))
    n.conv(16, 3, 2)
    for channels, size, stride in ((12, 3, 1), (16, 3, 2), (24, 5, 2), (40, 3, 2), (40, 5, 1)):
        start, made = n.end, n.shape[3]
        n.conv(4 * made)
        n.depthwise(size, stride)
        n.squeeze_excite(max(made // 4, 4))
        n.conv(channels, activation="NONE")
        if stride == 1 and made == channels:
            n.add(start)
    n.conv(160)
    return n.classify(7)


def tcn() -> bytes:
    """Dilated convolutions along time, with residuals: 128 steps of 6 sensors."""
    n = Network((1, 128, 1, 6))
    n.layer("conv", outputs=32, kernel=(5, 1), activation="RELU")
    for dilation in (1, 2, 4, 8):
        start = n.end
        for _ in range(2):
            n.layer("conv", outputs=32, kernel=(3, 1), dilation=dilation, activation="RELU")
        n.add(start)
    n.layer("conv", outputs=48, kernel=(3, 1), stride=(2, 1), activation="RELU")
    n.layer("max pool", kernel=(2, 1), stride=(2, 1), padding="VALID")
    n.layer("conv", outputs=64, kernel=(3, 1), padding="VALID", activation="RELU")
    return n.classify(6)


def mobilenet_v3() -> bytes:
    """Depthwise-separable with HARD_SWISH, windows of 3 and 5, on 64x64."""
    n = Network((1, 64, 64, 3))
    n.conv(16, 3, 2, activation="NONE")
    n.hard_swish()
    for channels, size, stride in ((24, 3, 1), (32, 5, 2), (48, 3, 1), (64, 5, 2), (64, 5, 1)):
        n.depthwise(size, stride, activation="NONE")
        n.hard_swish()
        n.conv(channels, activation="NONE")
        n.hard_swish()
    n.conv(128, activation="NONE")
    n.hard_swish()
    return n.classify(12)


def shufflenet() -> bytes:
    """Pointwise convolutions in three groups, shuffled by a transposition, on 48x48."""
    n = Network((1, 48, 48, 3))
    n.conv(24, 3, 2)
    n.layer("max pool", kernel=(3, 3), stride=(2, 2))
    for channels, count in ((48, 2), (96, 3)):
        for number in range(count):
            start, made = n.end, n.shape[3]
            n.layer("conv", outputs=24, groups=3, activation="RELU")
            _, height, width, _ = n.shape
            n.reshape(1, height, width, 3, 8)
            n.transpose(0, 1, 2, 4, 3)
            n.reshape(1, height, width, 24)
            n.depthwise(3, 1 if number else 2, activation="NONE")
            n.layer("conv", outputs=channels if number else channels - made, groups=3)
            if number:
                n.add(start)
            else:
                other, n.end = n.end, start
                n.layer("average pool", kernel=(3, 3), stride=(2, 2))
                n.concatenate(other)
    return n.classify(8)


def squeezenet() -> bytes:
    """Fire modules: few channels, then 1x1 and 3x3 side by side, on 64x64."""
    n = Network((1, 64, 64, 3))
    n.conv(24, 3, 2, "RELU")
    for inside, outside in ((8, 16), (16, 32), (24, 48)):
        n.pool(2)
        for _ in range(2):
            start = n.conv(inside, activation="RELU")
            narrow = n.conv(outside, activation="RELU")
            n.end = start
            n.conv(outside, 3, activation="RELU")
            n.concatenate(narrow)
    n.conv(10, activation="RELU")
    n.mean()
    return n.finish(n.softmax())


def transformer() -> bytes:
    """Two blocks of attention with four heads and a network for each step, over 32 steps."""
    steps, width, heads = 32, 64, 4
    n = Network((1, steps, 20))
    n.rows(width)
    for _ in range(2):
        start, sides = n.end, []
        for _ in range(3):
            n.end = start
            n.rows(width)
            n.reshape(1, steps, heads, width // heads)
            sides.append(n.transpose(0, 2, 1, 3))
        queries, keys, values = sides
        n.end = queries
        n.products(keys, turned=True)
        n.softmax()
        n.products(values, turned=False)
        n.transpose(0, 2, 1, 3)
        n.reshape(1, steps, width)
        n.rows(width)
        between = n.add(start)
        n.rows(2 * width, "RELU")
        n.rows(width)
        n.add(between)
    n.reshape(1, steps, 1, width)
    return n.classify(5)


def yolo() -> bytes:
    """Convolutions with LEAKY_RELU, and heads at two sizes, on 64x64."""
    n = Network((1, 64, 64, 3))

    def conv(channels: int, size: int = 3) -> int:
        n.conv(channels, size, activation="NONE")
        return n.leaky_relu()

    fine = 0
    for channels in (8, 16, 24, 32):
        fine = conv(channels)
        n.pool(2)
    conv(48)
    start = conv(32, 1)
    conv(48)
    coarse = n.conv(18, activation="NONE")
    n.end = start
    conv(16, 1)
    n.nearest(2)
    n.concatenate(fine)
    conv(32)
    return n.finish(coarse, n.conv(18, activation="NONE"))


def svdf_words() -> bytes:
    """Two convolutions and layers that remember: words, 16 frames of 10."""
    n = Network((1, 16, 10, 1))
    n.conv(24, 3, 2)
    n.conv(32, 3, 2)
    n.reshape(1, -1)
    n.svdf(64, 10, 2)
    n.layer("dense", outputs=32, activation="RELU")
    n.svdf(32, 8)
    n.layer("dense", outputs=6)
    return n.finish(n.softmax())


NETWORKS: Mapping[str, Callable[[], bytes]] = {
    "mobilenet_v2": mobilenet_v2,
    "u_net": u_net,
    "efficientnet": efficientnet,
    "tcn": tcn,
    "mobilenet_v3": mobilenet_v3,
    "shufflenet": shufflenet,
    "squeezenet": squeezenet,
    "transformer": transformer,
    "yolo": yolo,
    "svdf_words": svdf_words,
}

#: Networks as their papers have them; their times on real boards are published.
PUBLISHED: Mapping[str, Callable[[], bytes]] = {
    "mobilenet_v1_0.25_96": mobilenet_v1,
    "mobilenet_v2_0.35_96": mobilenet_v2_of_96,
    "fd_mobilenet_0.25_128": fd_mobilenet,
}


#: Files of other people: repositories of github.com, and the path there.
OTHERS: Mapping[str, tuple[str, str]] = {
    "str_ww_ref_model": (
        "mlcommons/tiny",
        "benchmark/training/streaming_wakeword/trained_models/str_ww_ref_model.tflite",
    ),
    "resnet_large": (
        "mlcommons/tiny",
        "benchmark/training/image_classification/trained_models/pretrainedResnet_large_int8.tflite",
    ),
    "mcunet_vww1": ("mit-han-lab/tinyengine", "assets/vww.tflite"),
    "dtln": (
        "tensorflow/tflite-micro",
        "tensorflow/lite/micro/examples/dtln/dtln_noise_suppression.tflite",
    ),
    "mnist_lstm": (
        "tensorflow/tflite-micro",
        "tensorflow/lite/micro/examples/mnist_lstm/trained_lstm_int8.tflite",
    ),
}


def found(names: list[str], models: Path | None, folder: Path) -> Iterator[tuple[str, Path]]:
    """The models of these names: those made here are written, those of others are looked up."""
    made = {**NETWORKS, **PUBLISHED}
    for name in names:
        if name in made:
            path = folder / f"{name}.tflite"
            path.write_bytes(made[name]())
            yield name, path
            continue
        repository, place = OTHERS[name]
        path = (models or folder) / Path(place).name
        if path.is_file():
            yield name, path
        else:
            where = f"{place} of github.com/{repository}"
            print(f"{name} is skipped: give the folder of {where} by --models", file=sys.stderr)


def main() -> None:
    """Compare the models one by one, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*NETWORKS, *PUBLISHED, *OTHERS]
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(known), default=known)
    parser.add_argument("--board", required=True)
    parser.add_argument("--cmsis-nn", type=Path, required=True)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.names) - set(known):
        parser.error(f"no network {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for network, path in found(options.names, options.models, folder):
            (told,) = bench([path], options.board, options.cmsis_nn, options.records)
            (folder / f"{network}.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
            rows.append(network_table.row_of(options.board, network, told))
    print("\n".join(network_table.table(rows)))
    if options.write:
        network_table.write(rows)


if __name__ == "__main__":
    main()
