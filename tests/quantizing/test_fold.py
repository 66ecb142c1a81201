"""Operators of a converted float file that are joined: what they compute stays."""

from __future__ import annotations

import numpy as np
import pytest
from float_writer import FloatWriter

from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.quality.quantizing.tflite.calibrate import outputs_of
from utvm_deploy.quality.quantizing.tflite.fold import folded

pytestmark = pytest.mark.tools

RNG = np.random.default_rng(5)
SAMPLES = RNG.normal(size=(4, 1, 6, 6, 3)).astype(np.float32)
SHAPE = (1, 6, 6, 4)
ZERO = np.zeros(1, np.float32)


def _normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def _with(
    m: FloatWriter, kind: str, x: int, constant: np.ndarray, shape: tuple[int, ...] = SHAPE
) -> int:
    options = "MaximumMinimumOptions" if kind == "MAXIMUM" else f"{kind.capitalize()}Options"
    return m.node(kind, [x, m.constant(constant)], shape, (options, {}))


def _conv(m: FloatWriter, *, activation: str = "NONE") -> int:
    return m.conv2d(m.input((1, 6, 6, 3)), _normal(4, 3, 3, 3), _normal(4), activation=activation)


def _check(writer: FloatWriter, kinds: list[str], *, is_exact: bool = False) -> None:
    data = writer.to_bytes()
    made = folded(data)
    assert [one.kind for one in load_bytes(made, "model").operators] == kinds
    real, found = (outputs_of(one, [SAMPLES]) for one in (data, made))
    for one, other in zip(real, found, strict=True):
        assert np.array_equal(one, other) if is_exact else np.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (4,), (1,), ()])
def test_factors_and_sums_of_channels_become_part_of_a_layer(shape: tuple[int, ...]) -> None:
    m = FloatWriter()
    y = _with(m, "ADD", _with(m, "MUL", _conv(m), _normal(*shape)), _normal(*shape))
    m.output(_with(m, "MAXIMUM", y, ZERO))
    _check(m, ["CONV_2D"])


def test_a_reshape_may_be_between() -> None:
    m = FloatWriter()
    y = m.reshape(_conv(m), (1, 36, 4))
    m.output(_with(m, "MUL", y, _normal(4), (1, 36, 4)))
    _check(m, ["CONV_2D", "RESHAPE"])


def test_a_maximum_with_zero_becomes_relu() -> None:
    m = FloatWriter()
    y = m.node("SIN", [m.input((1, 6, 6, 3))], (1, 6, 6, 3))
    m.output(_with(m, "MAXIMUM", y, ZERO, (1, 6, 6, 3)))
    _check(m, ["SIN", "RELU"], is_exact=True)


def test_what_others_read_stays() -> None:
    m = FloatWriter()
    x = _conv(m)
    m.output(x, _with(m, "MUL", x, _normal(4)))
    _check(m, ["CONV_2D", "MUL"], is_exact=True)


@pytest.mark.parametrize("shape", [(1, 6, 6, 4), (1, 6, 1, 1)])
def test_factors_of_places_stay(shape: tuple[int, ...]) -> None:
    m = FloatWriter()
    m.output(_with(m, "MUL", _conv(m), _normal(*shape)))
    _check(m, ["CONV_2D", "MUL"], is_exact=True)


def test_a_clamped_layer_stays() -> None:
    m = FloatWriter()
    m.output(_with(m, "MUL", _conv(m, activation="RELU6"), _normal(4)))
    _check(m, ["CONV_2D", "MUL"], is_exact=True)


def test_a_maximum_that_widens_its_operand_stays() -> None:
    m = FloatWriter()
    y = m.node("SIN", [m.input((1, 6, 6, 3))], (1, 6, 6, 3))
    m.output(_with(m, "MAXIMUM", y, np.zeros((2, 6, 6, 3), np.float32), (2, 6, 6, 3)))
    _check(m, ["SIN", "MAXIMUM"], is_exact=True)


def test_layers_that_share_weights_keep_their_own() -> None:
    m = FloatWriter()
    x = m.input((1, 6, 6, 3))
    weights, bias = m.constant(_normal(4, 1, 1, 3)), m.constant(_normal(4))
    options = ("Conv2DOptions", {"StrideW": 1, "StrideH": 1})
    rows = [m.node("CONV_2D", [x, weights, bias], SHAPE, options) for _ in range(2)]
    m.output(_with(m, "MUL", rows[0], _normal(4)), rows[1])
    _check(m, ["CONV_2D", "CONV_2D"])
