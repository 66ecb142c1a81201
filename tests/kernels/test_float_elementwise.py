"""Operators of float32 on one element of each input, against the reference: by its own inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from kernel_harness import check_model

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array

RNG = np.random.default_rng(1512)
#: Infinities, what is not a number, zeros of both signs, denormal and huge numbers, halves.
ODD = np.array(
    [
        *(np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-39, 3.4e38, -3.4e38),
        *(0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 1, -1, 6, -3, 3, 88.8, -9, -9.5, 16.7, -104, 8388607.5),
    ],
    np.float32,
)
UNARY = (
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG"),
    *("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"),
    *("ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH"),
)
ARITHMETIC = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}
BINARY = ("MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE", "PRELU")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


def plain(*shape: int) -> Array:
    return (RNG.normal(size=shape) * 4).astype(np.float32)


def odd(*shape: int) -> Array:
    array = plain(*shape).reshape(-1)
    array[::2] = RNG.choice(ODD, array[::2].shape)
    return array.reshape(shape)


def samples_of(m: FloatWriter) -> list[list[Array]]:
    return [[fill(*m.tensors[i].shape) for i in m.inputs] for fill in (plain, odd, odd)]


@pytest.mark.tools
def test_functions_of_one_element(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 97))
    for kind in UNARY:
        m.output(m.node(kind, [x], (1, 97)))
    m.output(m.node("LEAKY_RELU", [x], (1, 97), ("LeakyReluOptions", {"Alpha": 0.3})))
    for approximates in (False, True):
        options = ("GeluOptions", {"Approximate": approximates})
        m.output(m.node("GELU", [x], (1, 97), options))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, samples_of(m), tmp_path) == len(UNARY) + 3


@pytest.mark.tools
def test_functions_of_two_elements_broadcast(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((2, 3, 4, 5))
    others = [m.input((2, 3, 4, 5)), m.input((4, 1)), m.constant(plain(5)), m.input((1, 3, 1, 5))]
    shape, nodes = (2, 3, 4, 5), 0
    for other in others:
        for activation, (kind, table) in enumerate(ARITHMETIC.items()):
            options = (table, {"FusedActivationFunction": activation})
            m.output(m.node(kind, [x, other], shape, options))
            m.output(m.node(kind, [other, x], shape, options))
        for kind in BINARY:
            m.output(m.node(kind, [x, other], shape))
        for kind in COMPARISONS:
            out = m.tensor(shape, "bool")
            m.operator(kind, [other, x], [out])
            m.output(out)
        nodes += 2 * len(ARITHMETIC) + len(BINARY) + len(COMPARISONS)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, samples_of(m), tmp_path) == nodes


@pytest.mark.tools
def test_divisions_that_round_down(tmp_path: Path) -> None:
    """The reference stops at a divisor of 0, so there is none here."""
    m = FloatWriter()
    x, y = m.input((1, 64)), m.input((1, 64))
    m.output(m.node("FLOOR_DIV", [x, y], (1, 64)), m.node("FLOOR_MOD", [x, y], (1, 64)))
    path = m.save(tmp_path / "model.tflite")
    divisors = plain(1, 64)
    divisors[divisors == 0] = 1
    samples = [[plain(1, 64), divisors], [np.round(plain(1, 64)), np.round(divisors) * 2 + 1]]
    assert check_model(path, samples, tmp_path) == 2


@pytest.mark.tools
def test_arc_tangent_and_sums_of_tensors_of_one_shape(tmp_path: Path) -> None:
    m = FloatWriter()
    x, y, z = (m.input((3, 97)) for _ in range(3))
    m.output(m.node("ATAN2", [x, y], (3, 97), ("ATan2Options", {})))
    for inputs in ([x, y], [x, y, z, m.constant(plain(3, 97)), x]):
        m.output(m.node("ADD_N", inputs, (3, 97), ("AddNOptions", {})))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, samples_of(m), tmp_path) == 3


def test_an_arc_tangent_does_not_broadcast(tmp_path: Path) -> None:
    m = FloatWriter()
    m.output(m.node("ATAN2", [m.input((2, 3)), m.input((1, 3))], (2, 3), ("ATan2Options", {})))
    with pytest.raises(UnsupportedOperator, match="the reference does not broadcast it"):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.tools
def test_selection_and_casts(tmp_path: Path) -> None:
    m = FloatWriter()
    x, y = m.input((3, 8)), m.input((3, 8))
    condition = m.tensor((3, 8), "bool")
    m.operator("GREATER", [x, y], [condition])
    chosen = m.tensor((3, 8), "float32")
    m.operator("SELECT_V2", [condition, x, y], [chosen])
    m.output(chosen)
    for dtype in ("int32", "int64", "int8", "bool", "uint8", "int16"):
        made = m.tensor((3, 8), dtype)
        m.operator("CAST", [m.node("ABS", [x], (3, 8))], [made])
        back = m.tensor((3, 8), "float32")
        m.operator("CAST", [made], [back])
        m.output(back)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[plain(3, 8), plain(3, 8)]], tmp_path) == 20
