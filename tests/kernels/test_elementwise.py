"""Operators of one element of each input, against the reference; of one input on all values."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter

EVERY = np.arange(-128, 128, dtype=np.int8)
ACTIVATIONS = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
OPTIONS = {
    "LEAKY_RELU": "LeakyReluOptions",
    "ABS": "AbsOptions",
    "NEG": "NegOptions",
    "HARD_SWISH": "HardSwishOptions",
}
SCALES = (1e-4, 0.003, 0.0117, 0.047, 0.21, 1.0, 7.3)
ZEROS = (-128, -37, 0, 5, 127)


def _of_every_value(m: ModelWriter, kind: str, **fields: float) -> int:
    """Many scales and zero points of one operator; returns how many."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    count = 0
    for scale, zero in itertools.product(SCALES, ZEROS):
        x = m.input((256,), scale, zero)
        out_scale = 1 / 256 if kind == "LOGISTIC" else scale * float(rng.uniform(0.02, 3))
        out_zero = -128 if kind == "LOGISTIC" else int(rng.integers(-128, 128))
        if kind == "TANH" and rng.random() < 0.5:
            out_scale, out_zero = 1 / 128, 0
        if kind in ("ABS", "NEG") and rng.random() < 0.4:
            out_scale = scale
        if kind == "NEG":
            out_scale, out_zero = scale, zero
        options = (OPTIONS[kind], fields) if kind in OPTIONS else None
        m.output(m.node(kind, [x], (256,), options, scale=out_scale, zero_point=out_zero))
        count += 1
    return count


KINDS = (
    "ABS", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "TANH",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_value(kind: str, tmp_path: Path) -> None:
    m = ModelWriter()
    count = _of_every_value(m, kind)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[EVERY] * count], tmp_path) == count


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.3, 1.0, 2.5])
def test_leaky_relu(alpha: float, tmp_path: Path) -> None:
    m = ModelWriter()
    count = _of_every_value(m, "LEAKY_RELU", Alpha=alpha)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[EVERY] * count], tmp_path) == count


SHAPES = [
    ((5,), (5,)),
    ((1, 8, 8, 4), (1, 8, 8, 4)),
    ((1, 4, 4, 3), (3,)),
    ((1, 4, 4, 3), (1, 1, 1, 3)),
    ((1,), (2, 5)),
    ((1, 4, 1, 3), (1, 1, 5, 3)),
    ((1, 4, 1, 3), (4, 5, 1)),
    ((2, 1, 3, 1, 2), (2, 4, 3, 5, 2)),
    ((7, 1), (7, 9)),
    ((), (7, 9)),
]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", ["SUB", "MUL"])
def test_arithmetic(kind: str, constant: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    m = ModelWriter()
    activations = itertools.cycle(ACTIVATIONS.values())
    for left, right in SHAPES * 2:
        scales = rng.uniform(0.01, 0.1, 3)
        zeros = [int(z) for z in rng.integers(-128, 128, 3)]
        if left == ():
            a = m.constant(np.array(rng.integers(-128, 128), np.int8), float(scales[0]), zeros[0])
        else:
            a = m.input(left, float(scales[0]), zeros[0])
        if constant and left != ():
            data = rng.integers(-128, 128, right, dtype=np.int8)
            b = m.constant(data, float(scales[1]), zeros[1])
        else:
            b = m.input(right, float(scales[1]), zeros[1])
        operands = [b, a] if rng.random() < 0.5 else [a, b]
        scale = float(scales[2]) * 2 if kind == "SUB" else float(scales[0] * scales[1] * 90)
        shape = np.broadcast_shapes(left, right)
        name = {"SUB": "SubOptions", "MUL": "MulOptions"}[kind]
        options = (name, {"FusedActivationFunction": next(activations)})
        m.output(m.node(kind, operands, shape, options, scale=scale, zero_point=zeros[2]))
    assert check(m, tmp_path) == 2 * len(SHAPES)


@pytest.mark.parametrize("kind", ["SUB", "MUL"])
def test_arithmetic_of_every_pair(kind: str, tmp_path: Path) -> None:
    m = ModelWriter()
    cases = [(1.0, 1.0), (0.3, 1.7), (1.0, 4096.0), (0.001, 1.0), (0.7, 0.7)]
    for (left, right), factor in itertools.product(cases, (0.01, 0.5, 2.0, 3.3, 100.0)):
        a, b = m.input((256, 1), left, 5), m.input((1, 256), right, -7)
        natural = max(left, right) if kind == "SUB" else left * right * 50
        scale = factor * natural
        name = {"SUB": "SubOptions", "MUL": "MulOptions"}[kind]
        options = (name, {"FusedActivationFunction": 0})
        m.output(m.node(kind, [a, b], (256, 256), options, scale=scale, zero_point=3))
    path = m.save(tmp_path / "model.tflite")
    inputs = [EVERY.reshape(m.tensors[number].shape) for number in m.inputs]
    assert check_model(path, [inputs], tmp_path) == 5 * len(cases)


def test_extrema(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    m = ModelWriter()
    for kind, (left, right) in itertools.product(("MINIMUM", "MAXIMUM"), SHAPES[:-1]):
        a = m.input(left, 0.1, 3)
        if rng.random() < 0.3:
            b = m.constant(rng.integers(-128, 128, right, dtype=np.int8), 0.1, 3)
        else:
            b = m.input(right, 0.1, 3)
        shape = np.broadcast_shapes(left, right)
        m.output(m.node(kind, [a, b], shape, ("MaximumMinimumOptions", {})))
    assert check(m, tmp_path) == 2 * (len(SHAPES) - 1)


def test_prelu(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    m = ModelWriter()
    shapes = [
        ((1, 4, 4, 3), (1, 1, 3)),
        ((2, 6), (6,)),
        ((2, 6), (2, 6)),
        ((1, 5, 2, 2), (1, 1, 1)),
    ]
    for shape, alpha in shapes * 4:
        x = m.input(shape, float(rng.uniform(0.01, 0.1)), int(rng.integers(-128, 128)))
        data = rng.integers(-128, 128, alpha, dtype=np.int8)
        slope = m.constant(data, float(rng.uniform(0.001, 0.02)), int(rng.integers(-128, 128)))
        scale, zero = float(rng.uniform(0.01, 0.2)), int(rng.integers(-128, 128))
        m.output(m.node("PRELU", [x, slope], shape, scale=scale, zero_point=zero))
    assert check(m, tmp_path) == 4 * len(shapes)


ZERO_POINTS = {"int8": (-128, 128), "uint8": (0, 256), "int16": (0, 1), "int32": (-900, 900)}
#: What the reference's QUANTIZE makes of integers.
CONVERSIONS = {
    "int8": ("int8", "uint8", "int16"),
    "uint8": ("int8", "uint8", "int16"),
    "int16": ("int8", "int16", "int32"),
    "int32": ("int8", "int16"),
}


def test_conversions(tmp_path: Path) -> None:
    m = ModelWriter()
    rng = np.random.default_rng(6)
    count = 0
    for source, results in CONVERSIONS.items():
        for result, factor in itertools.product(results, (1.0, 0.37, 2.9)):
            zeros = [int(rng.integers(*ZERO_POINTS[dtype])) for dtype in (source, result)]
            x = m.tensor((300,), source, 0.02, zeros[0])
            m.inputs.append(x)
            options = ("QuantizeOptions", {})
            scale = 0.02 * factor
            y = m.node(
                "QUANTIZE", [x], (300,), options, scale=scale, zero_point=zeros[1], dtype=result
            )
            m.output(y if result == "int32" else m.dequantize(y))
            count += 1 if result == "int32" else 2
    for dtype in ("int8", "uint8", "int16"):
        x = m.float_input((400,))
        scale = 0.06 if dtype != "int16" else 0.0004
        zero = int(rng.integers(*ZERO_POINTS[dtype]))
        options = ("QuantizeOptions", {})
        m.output(
            m.node("QUANTIZE", [x], (400,), options, scale=scale, zero_point=zero, dtype=dtype)
        )
        count += 1
    assert check(m, tmp_path) == count


@pytest.mark.parametrize(
    ("source", "result"), [("int32", "int8"), ("int32", "int16"), ("int16", "int32")]
)
def test_conversions_at_the_ends(source: str, result: str, tmp_path: Path) -> None:
    """Where differences, shifts and sums of 32 bits wrap, too."""
    limits = np.iinfo(source)
    ends = np.array([limits.min, limits.min + 1, limits.max - 1, limits.max])
    halves = np.concatenate([ends // 2 + near for near in (-1, 0, 1)])
    spread = np.linspace(limits.min, limits.max, 300).astype(np.int64)
    values = np.concatenate([ends, halves, spread, np.arange(-300, 300)]).astype(source)
    m = ModelWriter()
    ratios = (2.0**-40, 2.0**-31, 2.0**-24, 1e-7, 0.3, 0.5, 0.9999999, 1.0, 1.5, 100.0, 2.0**29)
    zeros = ((0, 0), (5, 0), (-7, 3), (100, -128), (0, 127))
    for ratio, (before, after) in itertools.product(ratios, zeros):
        x = m.tensor(values.shape, source, 0.5 * ratio, before)
        m.inputs.append(x)
        y = m.tensor(values.shape, result, 0.5, after)
        m.operator("QUANTIZE", [x], [y], ("QuantizeOptions", {}))
        m.output(y)
    path = m.save(tmp_path / "model.tflite")
    count = len(ratios) * len(zeros)
    assert check_model(path, [[values] * count], tmp_path) == count


def test_a_conversion_to_another_type_of_equal_scale_stays(tmp_path: Path) -> None:
    m = ModelWriter()
    pairs = [("int8", "uint8"), ("uint8", "int8"), ("int8", "int16"), ("int16", "int8")]
    for source, result in [*pairs, ("int16", "int32"), ("int32", "int16")]:
        x = m.tensor((40,), source, 0.02, 0)
        m.inputs.append(x)
        middle = m.tensor((40,), result, 0.02, 0)
        m.operator("QUANTIZE", [x], [middle], ("QuantizeOptions", {}))
        m.output(m.node("RESHAPE", [middle, m.constant(np.array([5, 8], np.int32))], (5, 8)))
    assert check(m, tmp_path, simplified=True) == 12
