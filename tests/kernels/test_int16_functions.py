"""Products of int16 with int16, biases of int32, and functions of int16, against the reference."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import check, check_model
from test_int16 import source
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

EVERY = np.arange(-32768, 32768).astype(np.int16)
INT32, INT64 = 2, 4  # the schema's numbers


def test_batch_matmul(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    m = ModelWriter()
    shapes = [((3, 4), (4, 5)), ((2, 3, 4), (1, 4, 2)), ((1, 2, 3, 9), (2, 1, 9, 4))]
    cases = list(itertools.product(shapes, (False, True), ("computed", "constant", "bytes")))
    for (left, right), turned, kind in cases:
        batches = np.broadcast_shapes(left[:-2], right[:-2])
        made = (*batches, left[-2], right[-1])
        if turned:
            left, right = (*left[:-2], left[-1], left[-2]), (*right[:-2], right[-1], right[-2])
        x = source(m, left)
        if kind == "computed":
            y = source(m, right, 0.0003)
        elif kind == "constant":
            y = m.constant(rng.integers(-32768, 32768, right).astype(np.int16), 0.0003)
        else:
            y = m.constant(rng.integers(-128, 128, right).astype(np.int8), 0.05)
        options = ("BatchMatMulOptions", {"AdjX": turned, "AdjY": turned})
        m.output(m.node("BATCH_MATMUL", [x, y], made, options, scale=0.008))
    assert check(m, tmp_path) == len(cases)


def test_batch_matmul_of_computed_bytes(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = source(m, (2, 3, 5)), m.input((2, 5, 4), 0.05, 0)
    options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": False})
    m.output(m.node("BATCH_MATMUL", [x, y], (2, 3, 4), options, scale=0.003))
    assert check(m, tmp_path) == 1


def test_inverse_roots(tmp_path: Path) -> None:
    m = ModelWriter()
    positive = EVERY[EVERY >= 0]
    for scale, factor in itertools.product((1e-6, 0.0004, 0.05, 1.0, 900.0), (0.1, 1.0, 50.0)):
        made = factor / float(np.sqrt(scale * 30)) / 32767
        m.output(m.node("RSQRT", [source(m, positive.shape, scale)], positive.shape, scale=made))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[positive] * len(m.inputs)], tmp_path) == len(m.inputs)


@pytest.mark.parametrize("bias_type", [INT32, INT64])
def test_transpose_conv(bias_type: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    m = ModelWriter()
    cases = list(itertools.product((1, 2, 3), (0, 1), (False, True), (0.002, 0.05)))
    for stride, padding, has_bias, scale in cases:
        x = source(m, (1, 4, 3, 5))
        weights = rng.integers(-127, 128, (6, 3, 2, 5)).astype(np.int8)
        scales = [float(s) for s in rng.uniform(0.002, 0.02, 6)]
        made = [4 * stride, 3 * stride]
        if padding:  # VALID
            made = [3 * stride + 3, 2 * stride + 2]
        size = m.constant(np.array([1, *made, 6], np.int32))
        inputs = [size, m.constant(weights, scales), x]
        if has_bias:
            inputs.append(_bias(m, rng, 6, bias_type, [s * 0.0004 for s in scales]))
        fields = {
            "Padding": padding,
            "StrideH": stride,
            "StrideW": stride,
            "QuantizedBiasType": bias_type,
        }
        y = m.tensor((1, *made, 6), "int16", scale, 0)
        m.operator("TRANSPOSE_CONV", inputs, [y], ("TransposeConvOptions", fields))
        m.output(y)
    assert check(m, tmp_path) == len(cases)


def _bias(m: ModelWriter, rng: Any, count: int, dtype: int, scales: list[float]) -> int:
    values = rng.integers(-(2**22), 2**22, count)
    return m.constant(values.astype(np.int32 if dtype == INT32 else np.int64), scales)


@pytest.mark.parametrize("per_channel", [False, True])
def test_short_biases(per_channel: bool, tmp_path: Path) -> None:
    """A bias of int32 makes the reference sum up in 32 bits, and CONV_2D round twice."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    for scale, has_bias in itertools.product((0.00005, 0.001, 0.02), (False, True)):
        scales = [float(s) for s in rng.uniform(0.002, 0.02, 6 if per_channel else 1)]
        bias_scales = [s * 0.0004 for s in scales]
        weights = m.constant(rng.integers(-127, 128, (6, 20)).astype(np.int8), scales)
        inputs = [source(m, (3, 20)), weights]
        if has_bias:
            inputs.append(_bias(m, rng, 6, INT32, bias_scales))
        options = ("FullyConnectedOptions", {"QuantizedBiasType": INT32})
        m.output(m.node("FULLY_CONNECTED", inputs, (3, 6), options, scale=scale))
        weights = m.constant(rng.integers(-127, 128, (6, 3, 3, 2)).astype(np.int8), scales)
        inputs = [source(m, (1, 6, 5, 2)), weights, _bias(m, rng, 6, INT32, bias_scales)]
        fields = {"Padding": 0, "StrideH": 2, "StrideW": 1, "QuantizedBiasType": INT32}
        fields |= {"DilationHFactor": 1, "DilationWFactor": 1}
        options = ("Conv2DOptions", fields)
        m.output(m.node("CONV_2D", inputs, (1, 3, 5, 6), options, scale=scale))
    assert check(m, tmp_path) == 12


@pytest.mark.parametrize(
    ("inputs", "said", "why"), [(3000, INT32, "overflow"), (5, INT64, "int64"), (5, 0, "int64")]
)
def test_short_biases_that_do_not_hold_are_refused(
    inputs: int, said: int, why: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    weights = m.constant(np.full((2, inputs), 127, np.int8), 0.01)
    bias = m.constant(np.zeros(2, np.int32), 0.01 * 0.0004)
    options = ("FullyConnectedOptions", {"QuantizedBiasType": said})
    x = source(m, (1, inputs))
    m.output(m.node("FULLY_CONNECTED", [x, weights, bias], (1, 2), options, scale=0.01))
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "model.tflite"))


def test_resize_bilinear(tmp_path: Path) -> None:
    m = ModelWriter()
    sizes = [((1, 4, 3, 2), (8, 5)), ((2, 7, 5, 3), (3, 9)), ((1, 1, 1, 4), (3, 2))]
    flags = [(False, False), (True, False), (False, True)]
    for (shape, size), (corners, centers) in itertools.product(sizes, flags):
        constant = m.constant(np.array(size, np.int32))
        fields = {"AlignCorners": corners, "HalfPixelCenters": centers}
        made = (shape[0], *size, shape[3])
        options = ("ResizeBilinearOptions", fields)
        m.output(m.node("RESIZE_BILINEAR", [source(m, shape), constant], made, options))
    assert check(m, tmp_path, samples=4) == 9


def test_two_slopes_of_every_value(tmp_path: Path) -> None:
    m = ModelWriter()
    for factor in (1.0, 0.3, 1.7):
        x = source(m, EVERY.shape)
        m.output(m.node("ABS", [x], EVERY.shape, ("AbsOptions", {}), scale=0.0004 * factor))
        for alpha in (0.1, -0.3, 1.5):
            options = ("LeakyReluOptions", {"Alpha": alpha})
            m.output(m.node("LEAKY_RELU", [x], EVERY.shape, options, scale=0.0004 * factor))
        m.output(m.node("NEG", [x], EVERY.shape, ("NegOptions", {}), scale=0.0004 * factor))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[EVERY] * 3], tmp_path) == 15


def test_interpolated_functions_of_every_value(tmp_path: Path) -> None:
    m = ModelWriter()
    for scale in (0.0004, 1 / 4096, 0.00003, 0.001):
        x = source(m, EVERY.shape, scale)
        for approximate, factor in itertools.product((False, True), (1.0, 0.4)):
            options = ("GeluOptions", {"Approximate": approximate})
            m.output(m.node("GELU", [x], EVERY.shape, options, scale=scale * factor))
        made = float(np.exp(scale * 32767)) / 32767
        m.output(m.node("EXP", [x], EVERY.shape, ("ExpOptions", {}), scale=made))
        m.output(m.node("LOG", [x], EVERY.shape, scale=0.0004))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[EVERY] * 4], tmp_path) == 24


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
def test_sums_by_shifts(kind: str, tmp_path: Path) -> None:
    m = ModelWriter()
    powers = [(-10, -10, -10), (-12, -10, -10), (-10, -13, -10), (-3, -18, -3)]
    table = f"{kind.title()}Options"
    cases = list(itertools.product(powers, (0, 1, 3)))
    for (left, right, made), activation in cases:
        x, y = source(m, (4, 9), 2.0**left), source(m, (4, 9), 2.0**right)
        fields = {"FusedActivationFunction": activation, "PotScaleInt16": True}
        m.output(m.node(kind, [x, y], (4, 9), (table, fields), scale=2.0**made))
    # Nearly powers, and not nearly.
    for factor in (1.0004, 1.002):
        x, y = source(m, (4, 9), 2.0**-10 * factor), source(m, (4, 9), 2.0**-12)
        m.output(m.node(kind, [x, y], (4, 9), (table, {"PotScaleInt16": True}), scale=2.0**-10))
    assert check(m, tmp_path, samples=4) == len(cases) + 2


def test_differences_by_shifts_broadcast(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = source(m, (4, 9), 2.0**-12), source(m, (9,), 2.0**-10)
    fields = {"PotScaleInt16": True}
    m.output(m.node("SUB", [x, y], (4, 9), ("SubOptions", fields), scale=2.0**-10))
    assert check(m, tmp_path) == 1


@pytest.mark.parametrize(
    ("kind", "powers", "shape", "why"),
    [
        ("ADD", (-9, -10, -10), (4, 9), "powers smaller"),
        ("SUB", (-11, -11, -10), (4, 9), "powers smaller"),
        ("ADD", (-10, -10, -10), (9,), "broadcasts not"),
    ],
)
def test_shifts_that_the_reference_refuses(
    kind: str, powers: tuple[int, int, int], shape: tuple[int, ...], why: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    x, y = source(m, (4, 9), 2.0 ** powers[0]), source(m, shape, 2.0 ** powers[1])
    options = (f"{kind.title()}Options", {"PotScaleInt16": True})
    m.output(m.node(kind, [x, y], (4, 9), options, scale=2.0 ** powers[2]))
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "model.tflite"))
