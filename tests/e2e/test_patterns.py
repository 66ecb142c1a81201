"""Parts of well-known networks, small, through all passes, the planner and the kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import sample_inputs
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import connect
from utvm_deploy.oracle.reference import run_reference

Shape = tuple[int, ...]
Rng = np.random.Generator
FUSED = {"FusedActivationFunction": 0}


def ints(m: ModelWriter, *values: Any) -> list[int]:
    return [m.constant(np.array(value, np.int32)) for value in values]


def conv(m: ModelWriter, rng: Rng, x: int, outputs: int, window: int, **options: Any) -> int:
    weights = rng.integers(-127, 128, (outputs, window, window, m.tensors[x].shape[3]))
    bias = rng.integers(-500, 500, outputs).astype(np.int32)
    scales = [float(s) for s in rng.uniform(0.002, 0.02, outputs)]
    return m.conv2d(x, weights.astype(np.int8), bias, weight_scale=scales, **options)


def mobilenet_v3(m: ModelWriter, rng: Rng) -> None:
    """An inverted residual with squeeze and excitation, and HARD_SWISH taken apart as QAT does."""
    x = m.input((1, 8, 8, 6), 0.05, -3)
    y = conv(m, rng, x, 12, 1, scale=0.2)
    y = m.node(
        "HARD_SWISH", [y], (1, 8, 8, 12), ("HardSwishOptions", {}), scale=0.1, zero_point=-90
    )
    weights = rng.integers(-127, 128, (1, 3, 3, 12)).astype(np.int8)
    bias = rng.integers(-500, 500, 12).astype(np.int32)
    y = m.depthwise_conv2d(y, weights, bias, scale=0.2)
    squeezed = m.mean(y, [1, 2], keep_dims=True, scale=0.1)
    gate = conv(m, rng, squeezed, 3, 1, activation="RELU", scale=0.1, zero_point=-128)
    gate = conv(m, rng, gate, 12, 1, scale=0.1)
    gate = m.node("LOGISTIC", [gate], (1, 1, 1, 12), scale=1 / 256, zero_point=-128)
    y = m.node("MUL", [y, gate], (1, 8, 8, 12), ("MulOptions", FUSED), scale=0.15)
    y = conv(m, rng, y, 6, 1, scale=0.2)
    y = m.add(x, y, scale=0.2)
    three = m.constant(np.array([60], np.int8), 0.05, 0)
    shifted = m.add(y, three, activation="RELU6", scale=6 / 255, zero_point=-128)
    y = m.node("MUL", [y, shifted], (1, 8, 8, 6), ("MulOptions", FUSED), scale=0.2)
    m.output(m.mean(y, [1, 2], scale=0.1))


def u_net(m: ModelWriter, rng: Rng) -> None:
    """Down, up by both ways, joined with what was there before."""
    x = m.input((1, 8, 12, 2), 0.05, -3)
    wide = conv(m, rng, x, 4, 3, activation="RELU", scale=0.1, zero_point=-128)
    low = conv(m, rng, m.max_pool(wide, 2), 8, 3, activation="RELU", scale=0.1, zero_point=-128)
    weights = m.constant(rng.integers(-127, 128, (4, 2, 2, 8)).astype(np.int8), 0.01)
    up = m.tensor((1, 8, 12, 4), "int8", 0.1, -128)
    window = {"Padding": 0, "StrideH": 2, "StrideW": 2}
    inputs = [*ints(m, [1, 8, 12, 4]), weights, low]
    m.operator("TRANSPOSE_CONV", inputs, [up], ("TransposeConvOptions", window))
    corners = {"AlignCorners": False, "HalfPixelCenters": True}
    nearest = ("ResizeNearestNeighborOptions", corners)
    smooth = ("ResizeBilinearOptions", corners)
    one = m.node("RESIZE_NEAREST_NEIGHBOR", [low, *ints(m, [8, 12])], (1, 8, 12, 8), nearest)
    other = m.node("RESIZE_BILINEAR", [low, *ints(m, [8, 12])], (1, 8, 12, 8), smooth)
    joined = [wide, up, one, other]
    y = m.node("CONCATENATION", joined, (1, 8, 12, 24), ("ConcatenationOptions", {"Axis": 3}))
    y = m.pad(y, [[0, 0], [1, 1], [1, 1], [0, 0]])
    y = conv(m, rng, y, 3, 3, padding="VALID", scale=0.2)
    m.output(m.node("LOGISTIC", [y], (1, 8, 12, 3), scale=1 / 256, zero_point=-128))


def attention(m: ModelWriter, rng: Rng) -> None:
    """Two heads over five positions."""
    x = m.input((1, 5, 8), 0.05, -3)

    def heads(order: list[int], shape: Shape) -> int:
        weights = rng.integers(-127, 128, (8, 8)).astype(np.int8)
        bias = rng.integers(-500, 500, 8).astype(np.int32)
        y = m.fully_connected(x, weights, bias, keep_num_dims=True, scale=0.1)
        y = m.reshape(y, (1, 5, 2, 4))
        return m.node("TRANSPOSE", [y, *ints(m, order)], shape, ("TransposeOptions", {}))

    def product(a: int, b: int, shape: Shape, turned: bool, scale: float) -> int:
        options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": turned})
        return m.node("BATCH_MATMUL", [a, b], shape, options, scale=scale, zero_point=2)

    queries, keys, values = (heads([0, 2, 1, 3], (1, 2, 5, 4)) for _ in range(3))
    scores = product(queries, keys, (1, 2, 5, 5), True, 0.3)
    half = m.constant(np.array([64], np.int8), 1 / 128)
    scores = m.node("MUL", [scores, half], (1, 2, 5, 5), ("MulOptions", FUSED), scale=0.15)
    mixed = product(m.softmax(scores), values, (1, 2, 5, 4), False, 0.05)
    back = m.node(
        "TRANSPOSE", [mixed, *ints(m, [0, 2, 1, 3])], (1, 5, 2, 4), ("TransposeOptions", {})
    )
    back = m.reshape(back, (1, 5, 8))
    y = m.add(back, x, scale=0.1)
    centered = m.node(
        "SUB",
        [y, m.mean(y, [-1], keep_dims=True, scale=0.05)],
        (1, 5, 8),
        ("SubOptions", FUSED),
        scale=0.1,
    )
    squares = m.node("MUL", [centered, centered], (1, 5, 8), ("MulOptions", FUSED), scale=0.3)
    m.output(m.mean(squares, [-1], scale=0.2), y)


def detector(m: ModelWriter, rng: Rng) -> None:
    """A head that takes its channels apart, and the positions of the best of them."""
    x = m.input((1, 4, 4, 6), 0.05, -3)
    y = m.reshape(conv(m, rng, x, 12, 1, scale=0.1), (1, 16, 2, 6))
    masks = {f"{name}Mask": 0 for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}

    def taken(begin: int, end: int) -> int:
        options = ("StridedSliceOptions", {**masks, "BeginMask": 7, "EndMask": 7})
        bounds = ints(m, [0, 0, 0, begin], [0, 0, 0, end], [1, 1, 1, 1])
        return m.node("STRIDED_SLICE", [y, *bounds], (1, 16, 2, end - begin), options)

    fields = {"scale": 1 / 256, "zero_point": -128}
    centers = m.node("LOGISTIC", [taken(0, 2)], (1, 16, 2, 2), **fields)
    classes = m.node("LOGISTIC", [taken(2, 6)], (1, 16, 2, 4), **fields)
    options = ("ConcatenationOptions", {"Axis": -1})
    m.output(m.node("CONCATENATION", [centers, classes], (1, 16, 2, 6), options))
    best = m.tensor((1, 16, 2), "int32")
    m.operator("ARG_MAX", [classes, *ints(m, -1)], [best], ("ArgMaxOptions", {"OutputType": 2}))
    m.output(best)


def keywords(m: ModelWriter, rng: Rng) -> None:
    """A convolution over time alone, between EXPAND_DIMS and SQUEEZE, of a uint8 input."""
    x = m.tensor((1, 20, 6), "uint8", 0.05, 125)
    m.inputs.append(x)
    y = m.node("QUANTIZE", [x], (1, 20, 6), ("QuantizeOptions", {}), zero_point=-3, dtype="int8")
    y = m.node("EXPAND_DIMS", [y, *ints(m, 1)], (1, 1, 20, 6), ("ExpandDimsOptions", {}))
    weights = rng.integers(-127, 128, (8, 1, 5, 6)).astype(np.int8)
    bias = rng.integers(-500, 500, 8).astype(np.int32)
    y = m.conv2d(y, weights, bias, stride=(1, 2), activation="RELU", scale=0.1, zero_point=-128)
    y = m.node("SQUEEZE", [y], (10, 8), ("SqueezeOptions", {}))
    y = m.node("REDUCE_MAX", [y, *ints(m, [0])], (8,), ("ReducerOptions", {}))
    weights = rng.integers(-127, 128, (4, 8)).astype(np.int8)
    y = m.softmax(m.fully_connected(m.reshape(y, (1, 8)), weights, weight_scale=0.001, scale=0.02))
    options = ("QuantizeOptions", {})
    m.output(m.node("QUANTIZE", [y], (1, 4), options, scale=1 / 256, zero_point=0, dtype="uint8"))


PATTERNS: tuple[Callable[[ModelWriter, Rng], None], ...] = (
    mobilenet_v3,
    u_net,
    attention,
    detector,
    keywords,
)


@pytest.mark.parametrize("build", PATTERNS)
def test_every_output_is_equal(build: Callable[[ModelWriter, Rng], None], tmp_path: Path) -> None:
    m = ModelWriter()
    build(m, np.random.default_rng(11))
    path = m.save(tmp_path / f"{build.__name__}.tflite")
    samples = [sample_inputs(m, seed) for seed in range(4)]
    expected = run_reference(path, samples).outputs
    assert len({outputs[0].tobytes() for outputs in expected}) == len(samples)
    with connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host"))
        for sample, outputs in zip(samples, expected, strict=True):
            got, _ = model.run(sample)
            for ours, theirs in zip(got, outputs, strict=True):
                np.testing.assert_array_equal(ours, theirs)
