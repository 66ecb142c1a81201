"""float16 with arithmetic: IEEE's results, by exact fractions and by NumPy."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter
from format_models import SHAPES, drawn, module, network
from test_arithmetic import checked, saved
from tvm import relax

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.format_kernel import check_c

NAME = FLOAT16_ARITHMETIC.name
RNG = np.random.default_rng(25)


def nearest(exact: Fraction, negative: bool) -> int:
    """The bits of the number nearest to an exact value; ``negative`` is the sign of 0."""
    sign, size = 0x8000 if exact < 0 or (not exact and negative) else 0, abs(exact)
    if not size:
        return sign
    power = max(math.frexp(float(size))[1] - 1, -14)
    steps = size / Fraction(2) ** (power - 10)
    count, rest = divmod(steps.numerator, steps.denominator)
    middle = 2 * rest - steps.denominator
    count += middle > 0 or (middle == 0 and count & 1)
    # The leading bit of a normal number adds the 1 that its exponent lacks here.
    return sign | min((power + 14) * 1024 + count, 0x7C00)


def operands() -> tuple[Array, Array, Array]:
    """Numbers of all kinds, and products near the number that is added to them."""
    a, b, c = RNG.integers(0, 1 << 16, (3, 6000)).astype(np.uint16)
    near = FLOAT16_ARITHMETIC.computed("multiply", a, b).astype(np.int64) ^ 0x8000
    near = np.clip(near + RNG.integers(-2, 3, near.size), 0, 0xFFFF).astype(np.uint16)
    small = RNG.integers(0, 0x3000, (3, 3000)) | RNG.integers(0, 2, (3, 3000)) << 15
    first, second, third = small.astype(np.uint16)
    return np.r_[a, a, first], np.r_[b, b, second], np.r_[c, near, third]


def test_a_product_and_its_sum_are_rounded_once() -> None:
    given = operands()
    floats = [FLOAT16_ARITHMETIC.decoded(one) for one in given]
    found = FLOAT16_ARITHMETIC.computed("fma", *given)
    is_finite = np.isfinite(np.array(floats)).all(axis=0)
    assert is_finite.sum() > 10000
    for *values, code in zip(*(one[is_finite].tolist() for one in (*floats, found)), strict=True):
        a, b, c = map(Fraction, values)
        minus = np.signbit(values[0]) != np.signbit(values[1])
        zero = bool(minus and np.signbit(values[2]) and not a * b)
        assert code == nearest(a * b + c, zero), values
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = floats[0].astype(np.float64) * floats[1] + floats[2]
    assert np.array_equal(np.isnan(wanted), found == 0x7E00)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_other_operations_are_those_of_ieee(name: str) -> None:
    """NumPy's float16 computes in float32 and rounds: exact fractions judge both."""
    a, b, _ = operands()
    left, right = (FLOAT16_ARITHMETIC.decoded(one) for one in (a, b))
    chosen = np.isfinite(left) & np.isfinite(right) & (right != 0) & (left != 0)
    found = FLOAT16_ARITHMETIC.computed(name, a, b)
    operation = {"add": Fraction.__add__, "subtract": Fraction.__sub__,
                 "multiply": Fraction.__mul__, "divide": Fraction.__truediv__}[name]  # fmt: skip
    for one, other, code in zip(
        left[chosen].tolist(), right[chosen].tolist(), found[chosen].tolist(), strict=True
    ):
        minus = name in ("multiply", "divide") and (one < 0) != (other < 0)
        assert code == nearest(operation(Fraction(one), Fraction(other)), minus), (one, other)


@pytest.mark.tools
def test_c_has_the_bits_of_numpy() -> None:
    check_c(FLOAT16_ARITHMETIC)


def scaled(*shape: int) -> Any:
    """Products that loops have in front of a sum only after they are shaped."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.multiply(x, relax.const(drawn(*shape))))
            y = builder.emit(relax.op.add(y, relax.const(drawn(*shape))))
            total = relax.op.sum(relax.op.multiply(y, x), axis=[1], keepdims=True)
            y = builder.emit_output(relax.op.subtract(y, builder.emit(total)))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.tools
@pytest.mark.parametrize("where", ["host", "mps2_an500", "mps3_an547"])
def test_models_compute_in_float16(where: str, tmp_path: Path) -> None:
    path = saved(module([drawn(*shape) for shape in SHAPES]), tmp_path)
    compiled = checked(path, where, NAME)
    floats = utvm_deploy.compile(path, where, kernels="generic")
    assert compiled.arena_bytes < 0.8 * floats.arena_bytes
    assert compiled.weights_bytes < 0.52 * floats.weights_bytes
    is_vector = ["_mve_" in layer.kernel for layer in compiled.layers]
    assert sum(is_vector) == (3 if where == "mps3_an547" else 0)


def of_halves() -> Any:
    """A module of float16 with a part in float32."""
    rng = np.random.default_rng(3)
    x = relax.Var("x", relax.TensorType((2, 24), "float16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weights = relax.const(rng.normal(size=(24, 9)).astype("float16"))
            y = builder.emit(relax.op.nn.relu(relax.op.matmul(x, weights)))
            y = builder.emit(relax.op.nn.softmax(relax.op.astype(y, "float32")))
            one = relax.const(1.0, "float16")
            y = builder.emit_output(relax.op.add(relax.op.astype(y, "float16"), one))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.tools
def test_modules_of_float16_are_those_of_float32(tmp_path: Path) -> None:
    """Without a format their weights are float32; in float16 they have the bits of the file."""
    half = saved(of_halves(), tmp_path)
    compiled = checked(half, "mps3_an547", NAME)
    assert compiled.inputs[0].dtype == "float32"
    assert any("_mve_" in layer.kernel for layer in compiled.layers)
    assert utvm_deploy.compile(half, "host").weights_bytes > 1.9 * 24 * 9 * 2
    assert utvm_deploy.verify(half, "host").ok


@pytest.mark.tools
def test_files_of_other_formats_compute_in_float16(tmp_path: Path) -> None:
    checked(network(tmp_path / "net.tflite"), "host", NAME)


@pytest.mark.tools
def test_only_products_of_the_model_are_fused(tmp_path: Path) -> None:
    checked(saved(scaled(3, 20), tmp_path), "host", NAME)


def test_a_sum_lies_on_its_input(tmp_path: Path) -> None:
    m = FloatWriter()
    first = m.conv2d(m.input((1, 16, 16, 2)), drawn(16, 1, 1, 2), drawn(16))
    second = m.conv2d(first, drawn(16, 1, 1, 16), drawn(16))
    m.output(m.conv2d(m.add(first, second), drawn(2, 1, 1, 16), drawn(2)))
    path = m.save(tmp_path / "sum.tflite")
    floats, halves = (
        utvm_deploy.compile(path, "mps3_an547", kernels="generic", number_format=one).arena_bytes
        for one in (None, NAME)
    )
    assert halves == 2 * 16 * 16 * 16 * 2 and floats == 2 * halves


def test_what_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Also among biases, which are rounded where a format computes."""
    for weight, bias in ((1e5, 0.0), (1.0, 7e4)):
        m = FloatWriter()
        weights, biases = np.full((3, 4), weight, np.float32), np.full(3, bias, np.float32)
        m.output(m.fully_connected(m.input((1, 4)), weights, biases))
        path = m.save(tmp_path / "model.tflite")
        with pytest.raises(ModelError, match=r"(100000|70000), which float16_arithmetic cannot"):
            utvm_deploy.compile(path, "host", number_format=NAME)
