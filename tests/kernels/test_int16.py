"""Operators on int16 activations, by int8 weights where there are any, against the reference."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.device import Device
from utvm_deploy.oracle.reference import run_reference

Shape = tuple[int, ...]


def source(m: ModelWriter, shape: Shape, scale: float = 0.0004) -> int:
    number = m.tensor(shape, "int16", scale, 0)
    m.inputs.append(number)
    return number


def _weighted(
    m: ModelWriter,
    rng: np.random.Generator,
    kind: str,
    x: int,
    weights: np.ndarray,
    axis: int,
    result: Shape,
    options: tuple[str, dict[str, int]],
    has_bias: bool = True,
    per_channel: bool = True,
    scale: float = 0.002,
) -> None:
    channels = weights.shape[axis]
    scales = [float(s) for s in rng.uniform(0.002, 0.02, channels if per_channel else 1)]
    inputs = [x, m.constant(weights, scales, axis=axis)]
    if has_bias:
        bias = rng.integers(-(2**24), 2**24, channels).astype(np.int64)
        inputs.append(m.constant(bias, [s * m.tensors[x].scales[0] for s in scales]))
    m.output(m.node(kind, inputs, result, options, scale=scale))


def _window_options(name: str, padding: int, stride: int, activation: int) -> tuple:
    fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    return name, {
        **fields,
        "DilationHFactor": 1,
        "DilationWFactor": 1,
        "FusedActivationFunction": activation,
    }


@pytest.mark.parametrize("has_bias", [False, True])
def test_convolutions(has_bias: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    m = ModelWriter()
    activations = itertools.cycle(range(4))
    cases = [((1, 6, 5, 3), 4, 3, 3), ((1, 6, 5, 4), 6, 1, 4), ((2, 4, 4, 4), 4, 2, 2)]
    for (shape, outputs, window, depth), padding, stride in itertools.product(
        cases, (0, 1), (1, 2)
    ):
        rows, columns = (-(-(size - (window - 1) * padding) // stride) for size in shape[1:3])
        weights = rng.integers(-127, 128, (outputs, window, window, depth)).astype(np.int8)
        options = _window_options("Conv2DOptions", padding, stride, next(activations))
        result = (shape[0], rows, columns, outputs)
        x = source(m, shape)
        # LiteRT refuses a quantized CONV_2D without a bias.
        _weighted(m, rng, "CONV_2D", x, weights, 0, result, options)
        outputs = shape[3] * 2
        weights = rng.integers(-127, 128, (1, window, window, outputs)).astype(np.int8)
        name, fields = _window_options("DepthwiseConv2DOptions", padding, stride, 0)
        options = (name, {**fields, "DepthMultiplier": 2})
        result = (shape[0], rows, columns, outputs)
        _weighted(m, rng, "DEPTHWISE_CONV_2D", x, weights, 3, result, options, has_bias)
    assert check(m, tmp_path) == 8 * len(cases)


@pytest.mark.parametrize("per_channel", [False, True])
def test_dense(per_channel: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    m = ModelWriter()
    cases = [(1, 20, 6), (3, 7, 5), (1, 1, 1), (2, 300, 4)]
    for (batch, inputs, outputs), has_bias, scale in itertools.product(
        cases, (False, True), (0.00005, 0.01)
    ):
        weights = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
        options = ("FullyConnectedOptions", {"FusedActivationFunction": int(has_bias)})
        x = source(m, (batch, inputs))
        _weighted(
            m, rng, "FULLY_CONNECTED", x, weights, 0, (batch, outputs), options, has_bias,
            per_channel, scale,
        )  # fmt: skip
    assert check(m, tmp_path) == 4 * len(cases)


def test_elementwise(tmp_path: Path) -> None:
    m = ModelWriter()
    rng = np.random.default_rng(3)
    shapes = [((1, 4, 3, 5), (1, 4, 3, 5)), ((1, 4, 3, 5), (5,)), ((3, 1), (1, 4))]
    tables = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
    for (left, right), kind, activation in itertools.product(shapes, tables, (0, 1, 3)):
        scales = [float(s) for s in rng.uniform(0.0001, 0.001, 3)]
        a, b = source(m, left, scales[0]), source(m, right, scales[1])
        fields = {"FusedActivationFunction": activation}
        if kind != "MUL":
            fields["PotScaleInt16"] = False
        scale = scales[2] * 2 if kind != "MUL" else scales[0] * scales[1] * 3e4
        shape = np.broadcast_shapes(left, right)
        m.output(m.node(kind, [a, b], shape, (tables[kind], fields), scale=scale))
    for left, right in shapes:
        for kind in ("MINIMUM", "MAXIMUM"):
            a, b = source(m, left), source(m, right)
            shape = np.broadcast_shapes(left, right)
            m.output(m.node(kind, [a, b], shape, ("MaximumMinimumOptions", {})))
    for kind in ("RELU", "RELU6"):
        for factor in (0.4, 1.0, 2.7):
            m.output(m.node(kind, [source(m, (50,))], (50,), scale=0.0004 * factor))
    assert check(m, tmp_path) == 9 * len(shapes) + 2 * len(shapes) + 6


def test_pools_and_reductions(tmp_path: Path) -> None:
    m = ModelWriter()
    for kind, window, stride, padding in itertools.product(
        ("average_pool", "max_pool"), (2, 3), (1, 2), ("SAME", "VALID")
    ):
        x = source(m, (1, 7, 6, 3))
        y = getattr(m, kind)(x, window, stride=stride, padding=padding, activation="RELU6")
        m.tensors[y].dtype = "int16"
        m.output(y)
    x, axes = source(m, (2, 5, 3)), m.constant(np.array([1], np.int32))
    m.output(m.node("REDUCE_MAX", [x, axes], (2, 3), ("ReducerOptions", {})))
    for shape, reduced in (((1, 5, 6, 3), (1, 2)), ((2, 40, 3), (1,)), ((3, 7), (1,))):
        left = np.zeros(shape).sum(reduced).shape
        inputs = [source(m, shape), m.constant(np.array(reduced, np.int32))]
        m.output(m.node("MEAN", inputs, left, ("ReducerOptions", {}), scale=0.0003))
    paddings = m.constant(np.array([[0, 0], [1, 2], [0, 3]], np.int32))
    m.output(m.node("PAD", [x, paddings], (2, 8, 6), ("PadOptions", {})))
    assert check(m, tmp_path) == 21


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH"])
def test_sigmoids_of_every_value(kind: str, tmp_path: Path) -> None:
    every = np.arange(-32768, 32768).astype(np.int16)
    m = ModelWriter()
    scales = (1 / 4096, 1 / 2048, 1 / 8192, 0.0004, 0.00007, 0.003, 0.00001)
    for scale in scales:
        m.output(m.node(kind, [source(m, every.shape, scale)], every.shape, scale=1 / 32768))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[every] * len(scales)], tmp_path) == len(scales)


@pytest.mark.spread(1)
def test_sigmoids_on_boards(device: Device, tmp_path: Path) -> None:
    """Of an odd number of elements, and of a scale whose multiplier takes more than 16 bits."""
    every = np.append(np.arange(-32768, 32768, 41), [32767, -1, 0]).astype(np.int16)
    m = ModelWriter()
    for kind, scale in itertools.product(("LOGISTIC", "TANH"), (1 / 4096, 0.003, 5.0)):
        m.output(m.node(kind, [source(m, every.shape, scale)], every.shape, scale=1 / 32768))
    path = m.save(tmp_path / "model.tflite")
    samples = [[every] * len(m.inputs)]
    (expected,) = run_reference(path, samples).outputs
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    got, _ = model.run(samples[0])
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _softmax(m: ModelWriter, shape: Shape, scale: float, beta: float = 1.0) -> None:
    options = ("SoftmaxOptions", {"Beta": beta})
    m.output(m.node("SOFTMAX", [source(m, shape, scale)], shape, options, scale=1 / 32768))


def test_softmax(tmp_path: Path) -> None:
    m = ModelWriter()
    cases = [((1, 10), 0.0004, 1.0), ((3, 7), 0.0001, 0.5), ((2, 3, 100), 0.001, 1.0)]
    cases += [((4, 1), 0.0004, 1.0), ((1, 1000), 0.0000305, 1.0), ((5, 2), 1 / 4096, 2.0)]
    cases += [((1, 13), 320_000.0, 1.0)]  # a factor just below 2**31
    # Shifts of 14, the largest whose differences may be doubled, and of 15; and of less than -30.
    cases += [((3, 9), 2.4, 1.0), ((3, 9), 2.6, 1.0), ((2, 6), 1e-14, 1.0)]
    for shape, scale, beta in cases:
        _softmax(m, shape, scale, beta)
    assert check(m, tmp_path) == len(cases)


def test_softmax_whose_factor_shifts_beyond_32_bits_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    _softmax(m, (1, 13), 2.0e7)
    with pytest.raises(CompileError, match=r"operator 0 \(SOFTMAX\), .* factor 1\.3107e\+11, and"):
        check(m, tmp_path)
