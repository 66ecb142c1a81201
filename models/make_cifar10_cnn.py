"""Make cifar10_cnn.tflite: the CIFAR-10 network of the 2020 microTVM work, with generated weights.

    .venv/bin/python models/make_cifar10_cnn.py            # writes next to this file
    .venv/bin/python models/make_cifar10_cnn.py -o OTHER   # or into the folder OTHER

It is a benchmark, not a classifier: 32x32x3 in; 5x5 convolutions with ReLU to 32, 32 and 64
channels, each followed by a 3x3 pool with stride 2, max then average twice; a dense layer from 1024
to 10. Weights are random and seeded. Output scales are set from what the float network gives for
seeded random images, so that few values saturate and every bit of the arithmetic is at work.
Nothing but numpy and the tests' writer of .tflite files is needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from tflite_writer import ModelWriter  # noqa: E402

SEED = 20200604
CHANNELS = (32, 32, 64)
WINDOW = 5
CLASSES = 10
IMAGES = 32  # that scales are set from
#: Of the largest activation seen: what lies above saturates.
COVERED = 0.999
INPUT_SCALE, INPUT_ZERO_POINT = 1 / 255, -128

Floats = npt.NDArray[np.float64]
Int8s = npt.NDArray[np.int8]


def main() -> None:
    """Write the file and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=HERE, help="folder to write into")
    path = parser.parse_args().output / "cifar10_cnn.tflite"
    path.write_bytes(build())
    print(f"{path.name}: {path.stat().st_size} bytes")


def build() -> bytes:
    """The model file."""
    rng = np.random.default_rng(SEED)
    images = rng.integers(0, 256, (IMAGES, 32, 32, 3)) * INPUT_SCALE
    writer = ModelWriter(description="CIFAR-10 CNN, generated weights")
    tensor = writer.input((1, 32, 32, 3), INPUT_SCALE, INPUT_ZERO_POINT, name="image")
    scale = INPUT_SCALE
    for position, channels in enumerate(CHANNELS):
        shape = (channels, WINDOW, WINDOW, images.shape[3])
        weights, weight_scales, bias = generate(rng, shape, scale)
        real_bias = bias * scale * weight_scales
        images = convolve(images, weights * weight_scales[:, None, None, None])
        images = np.maximum(images + real_bias, 0)
        scale = float(np.quantile(images, COVERED)) / 255
        tensor = writer.conv2d(
            tensor,
            weights,
            bias,
            weight_scale=weight_scales.tolist(),
            activation="RELU",
            scale=scale,
            zero_point=-128,
        )
        if position == 0:
            tensor = writer.max_pool(tensor, 3, stride=2, padding="SAME")
            images = windows(images, 3, 2, -np.inf).max(axis=(3, 4))
        else:
            tensor = writer.average_pool(tensor, 3, stride=2, padding="SAME")
            images = np.nanmean(windows(images, 3, 2, np.nan), axis=(3, 4))
    tensor = writer.reshape(tensor, (1, -1))
    flat = images.reshape(IMAGES, -1)
    weights, weight_scales, bias = generate(rng, (CLASSES, flat.shape[1]), scale)
    scores = flat @ (weights * weight_scales[:, None]).T + bias * scale * weight_scales
    low, high = float(scores.min()), float(scores.max())
    writer.output(
        writer.fully_connected(
            tensor,
            weights,
            # A dense layer has one scale for all its weights.
            bias,
            weight_scale=float(weight_scales[0]),
            scale=(high - low) / 255,
            zero_point=round(-128 - low * 255 / (high - low)),
        )
    )
    return writer.to_bytes()


def generate(
    rng: np.random.Generator, shape: tuple[int, ...], input_scale: float
) -> tuple[Int8s, Floats, npt.NDArray[np.int32]]:
    """Weights, their scales per output channel and biases, of a layer that keeps its variance."""
    weights = np.clip(np.round(rng.normal(0, 40, shape)), -127, 127).astype(np.int8)
    fan_in = int(np.prod(shape[1:]))
    spread = rng.uniform(0.6, 1.6, shape[0]) if len(shape) == 4 else np.ones(shape[0])
    # As a file holds them: in single precision.
    scales = (spread * np.sqrt(2 / fan_in) / 40).astype(np.float32).astype(np.float64)
    bias = np.round(rng.normal(0, 0.05, shape[0]) / (input_scale * scales)).astype(np.int32)
    return weights, scales, bias


def windows(images: Floats, size: int, stride: int, border: float) -> Floats:
    """Every SAME window: [image, row, column, ky, kx, channel]."""
    total = max((-(-images.shape[1] // stride) - 1) * stride + size - images.shape[1], 0)
    pads = (total // 2, total - total // 2)
    padded = np.pad(images, ((0, 0), pads, pads, (0, 0)), constant_values=border)
    view = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
    return np.moveaxis(view[:, ::stride, ::stride], 3, 5)


def convolve(images: Floats, weights: Floats) -> Floats:
    """SAME convolution with stride 1; weights are OHWI."""
    return np.einsum(
        "nyxhwc,ohwc->nyxo", windows(images, weights.shape[1], 1, 0.0), weights, optimize=True
    )


if __name__ == "__main__":
    main()
