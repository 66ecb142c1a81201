"""CONV_2D and DEPTHWISE_CONV_2D over shapes, strides, dilations, paddings, scales and clamps."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

pytestmark = pytest.mark.tools

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def weights_and_bias(
    rng: np.random.Generator, shape: tuple[int, ...], channels: int
) -> tuple[np.ndarray, np.ndarray]:
    weights = rng.integers(-127, 128, shape, dtype=np.int8)
    return weights, rng.integers(-5000, 5000, channels, dtype=np.int32)


def spread_scale(taps: int, input_scale: float, weight_scale: float) -> float:
    """An output scale at which random accumulators cover int8 without saturating all."""
    return float(input_scale * weight_scale * 74 * 74 * np.sqrt(taps) / 50)


# image, channels, outputs, kernel, stride, dilation, padding
CONVOLUTIONS = [
    ((1, 1, 1), 1, 1, (1, 1), 1, 1, "VALID"),
    ((1, 5, 7), 1, 3, (1, 1), 1, 1, "SAME"),
    ((1, 8, 8), 16, 8, (1, 1), 1, 1, "SAME"),
    ((1, 8, 8), 5, 7, (1, 1), 2, 1, "SAME"),
    ((1, 9, 7), 3, 11, (3, 3), 1, 1, "SAME"),
    ((1, 9, 7), 3, 11, (3, 3), 1, 1, "VALID"),
    ((1, 8, 8), 4, 6, (3, 3), 2, 1, "SAME"),
    ((1, 9, 9), 4, 6, (3, 3), 2, 1, "SAME"),
    ((1, 9, 9), 4, 6, (3, 3), 3, 1, "SAME"),
    ((1, 8, 12), 2, 4, (5, 3), (2, 1), 1, "SAME"),
    ((1, 49, 10), 1, 16, (10, 4), 2, 1, "SAME"),
    ((1, 7, 6), 3, 4, (2, 2), 1, 1, "SAME"),
    ((1, 7, 6), 3, 4, (2, 4), 1, 1, "SAME"),
    ((1, 12, 12), 3, 4, (3, 3), 1, 2, "SAME"),
    ((1, 12, 12), 3, 4, (3, 3), 1, (2, 3), "VALID"),
    ((1, 12, 12), 3, 5, (3, 2), 1, (1, 4), "SAME"),
    ((1, 3, 3), 2, 2, (5, 5), 1, 1, "SAME"),
    ((1, 2, 2), 2, 2, (5, 5), 2, 1, "SAME"),
    ((2, 6, 5), 3, 4, (3, 3), 1, 1, "SAME"),
    ((3, 4, 4), 2, 9, (1, 1), 1, 1, "VALID"),
    ((2, 6, 5), 3, 4, (3, 3), 2, 1, "VALID"),
    ((1, 1, 20), 3, 4, (1, 7), 1, 1, "SAME"),
    ((1, 20, 1), 3, 4, (7, 1), 2, 1, "SAME"),
    ((1, 6, 6), 33, 13, (3, 3), 1, 1, "SAME"),
    ((1, 10, 10), 8, 2, (3, 3), (1, 2), 1, "SAME"),
]


@pytest.mark.parametrize("per_channel", [False, True])
def test_conv2d(per_channel: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    m = ModelWriter()
    activations = itertools.cycle(ACTIVATIONS)
    for image, channels, outputs, kernel, stride, dilation, padding in CONVOLUTIONS:
        weights, bias = weights_and_bias(rng, (outputs, *kernel, channels), outputs)
        input_scale = float(rng.uniform(0.005, 0.1))
        scales = rng.uniform(0.003, 0.02, outputs) if per_channel else 0.01
        x = m.input((*image, channels), input_scale, int(rng.integers(-128, 128)))
        y = m.conv2d(
            x,
            weights,
            bias,  # the reference refuses CONV_2D without one
            weight_scale=scales,
            stride=stride,
            dilation=dilation,
            padding=padding,
            activation=next(activations),
            scale=spread_scale(channels * kernel[0] * kernel[1], input_scale, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    assert check(m, tmp_path) == len(CONVOLUTIONS)


# image, channels, depth multiplier, kernel, stride, dilation, padding
DEPTHWISE = [
    ((1, 1, 1), 1, 1, (1, 1), 1, 1, "VALID"),
    ((1, 5, 5), 1, 1, (3, 3), 1, 1, "SAME"),
    ((1, 5, 5), 8, 1, (3, 3), 1, 1, "SAME"),
    ((1, 25, 5), 12, 1, (3, 3), 1, 1, "SAME"),
    ((1, 8, 8), 7, 1, (3, 3), 2, 1, "SAME"),
    ((1, 9, 7), 4, 1, (3, 3), 2, 1, "SAME"),
    ((1, 9, 7), 4, 1, (3, 3), 1, 1, "VALID"),
    ((1, 9, 9), 3, 2, (3, 3), 1, 1, "SAME"),
    ((1, 9, 9), 1, 8, (3, 3), 2, 1, "SAME"),
    ((1, 9, 9), 2, 5, (5, 5), 1, 1, "SAME"),
    ((1, 12, 11), 3, 1, (5, 3), 1, 1, "SAME"),
    ((1, 12, 11), 3, 1, (7, 7), 1, 1, "SAME"),
    ((1, 12, 11), 3, 1, (1, 12), 1, 1, "SAME"),
    ((1, 49, 10), 2, 4, (10, 4), 2, 1, "SAME"),
    ((1, 12, 11), 3, 1, (3, 3), 1, 2, "SAME"),
    ((1, 12, 11), 3, 2, (3, 3), 1, (3, 2), "VALID"),
    ((2, 6, 5), 3, 1, (3, 3), 1, 1, "SAME"),
    ((2, 6, 5), 3, 2, (2, 2), 2, 1, "SAME"),
    ((1, 2, 2), 5, 1, (3, 3), 1, 1, "SAME"),
    ((1, 1, 9), 5, 1, (1, 3), 1, 1, "SAME"),
    ((1, 3, 3), 256, 1, (3, 3), 1, 1, "SAME"),
]


@pytest.mark.parametrize("per_channel", [False, True])
def test_depthwise(per_channel: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    m = ModelWriter()
    activations = itertools.cycle(ACTIVATIONS)
    for image, channels, multiplier, kernel, stride, dilation, padding in DEPTHWISE:
        outputs = channels * multiplier
        weights, bias = weights_and_bias(rng, (1, *kernel, outputs), outputs)
        input_scale = float(rng.uniform(0.005, 0.1))
        scales = rng.uniform(0.003, 0.02, outputs) if per_channel else 0.01
        x = m.input((*image, channels), input_scale, int(rng.integers(-128, 128)))
        y = m.depthwise_conv2d(
            x,
            weights,
            bias if rng.random() < 0.8 else None,
            weight_scale=scales,
            stride=stride,
            dilation=dilation,
            padding=padding,
            activation=next(activations),
            scale=spread_scale(kernel[0] * kernel[1], input_scale, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    assert check(m, tmp_path) == len(DEPTHWISE)


@pytest.mark.parametrize("depthwise", [False, True])
def test_extreme_scales(depthwise: bool, tmp_path: Path) -> None:
    """Effective scales from 2**-34 (all zero) to 2**8 (left shifts), and exact powers of two."""
    rng = np.random.default_rng(6)
    m = ModelWriter()
    exponents = range(-34, 9)
    for exponent in exponents:
        # Small weights and inputs close to zero keep the results of large scales inside int32.
        limit = 127 if exponent < -4 else 2
        shape = (1, 1, 1, 4) if depthwise else (4, 1, 1, 4)
        weights = rng.integers(-limit, limit + 1, shape, dtype=np.int8)
        largest_bias = 2**29 if exponent < -22 else 3
        bias = rng.integers(-largest_bias, largest_bias, 4, dtype=np.int32)
        x = m.input((1, 5, 5, 4), 1.0, 0)
        factor = 1.0 if exponent % 2 else float(rng.uniform(0.5, 1.0))
        convolution = m.depthwise_conv2d if depthwise else m.conv2d
        m.output(
            convolution(
                x,
                weights,
                bias,
                weight_scale=factor,
                scale=2.0**-exponent,
                zero_point=int(rng.integers(-60, 60)),
            )
        )
    assert check(m, tmp_path) == len(exponents)


def test_explicit_padding(tmp_path: Path) -> None:
    """A PAD that was merged into the convolution after it: any border on any side."""
    rng = np.random.default_rng(10)
    m = ModelWriter()
    borders = [(0, 1, 0, 1), (1, 1, 1, 1), (3, 0, 0, 2), (0, 0, 5, 0), (4, 4, 4, 4), (0, 2, 3, 1)]
    for (top, bottom, left, right), stride in itertools.product(borders, (1, 2)):
        for depthwise in (False, True):
            shape = (1, 3, 3, 4) if depthwise else (5, 3, 3, 4)
            outputs = 4 if depthwise else 5
            weights, bias = weights_and_bias(rng, shape, outputs)
            x = m.input((1, 8, 7, 4), 0.05, int(rng.integers(-128, 128)))
            padded = m.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)])
            convolution = m.depthwise_conv2d if depthwise else m.conv2d
            y = convolution(
                padded,
                weights,
                bias,
                stride=stride,
                padding="VALID",
                scale=spread_scale(36, 0.05, 0.01),
                zero_point=int(rng.integers(-128, 128)),
            )
            m.output(y)
    assert check(m, tmp_path, simplified=True) == 4 * len(borders)


def test_unscheduled_kernels_compute_the_same(tmp_path: Path) -> None:
    """What a schedule search starts from."""
    rng = np.random.default_rng(11)
    m = ModelWriter()
    x = m.input((1, 6, 5, 4), 0.05, -7)
    weights, bias = weights_and_bias(rng, (6, 3, 3, 4), 6)
    y = m.conv2d(x, weights, bias, scale=1.0, zero_point=3)
    weights, bias = weights_and_bias(rng, (1, 3, 3, 6), 6)
    y = m.depthwise_conv2d(y, weights, bias, stride=2, scale=20.0, zero_point=4)
    y = m.average_pool(y, 2, stride=1, padding="SAME")
    y = m.add(y, y, scale=30.0)
    y = m.mean(y, [1], scale=10.0)
    weights, bias = weights_and_bias(rng, (4, 18), 4)
    y = m.fully_connected(m.reshape(y, (1, 18)), weights, bias, scale=50.0)
    m.output(m.softmax(y))
    assert check(m, tmp_path, scheduled=False) == 8
