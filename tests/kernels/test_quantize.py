"""Fixed-point arithmetic: the C functions, their twins in Python, and exact fractions."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kernel_harness import PREAMBLE, compile_library

from utvm_deploy.base.errors import CompileError
from utvm_deploy.kernels.contract.requantization import (
    ExactMultiplier,
    exact_multiplier,
    fold_input_offset,
    mean_multiplier,
    quantize_multiplier,
    requantized,
)
from utvm_deploy.kernels.native.routines.softmax import exponential_table
from utvm_deploy.kernels.portable.integers.conversions import FRACTIONS, reciprocal_of

INT32 = st.integers(-(2**31), 2**31 - 1)
MULTIPLIERS = st.integers(2**30, 2**31 - 1) | st.just(0)

_FUNCTIONS = {
    "utvm_requantize": 3,
    "utvm_requantize_exact": 4,
    "utvm_add": 2,
    "utvm_clamp": 3,
    "utvm_divide": 2,
    "utvm_leading_zeros": 1,
    "utvm_reciprocal": 1,
    "utvm_rounded_shift": 2,
    "utvm_saturated_shift": 2,
}


#: The first of some values that ``utvm_quantize_by`` rounds unlike a quotient; -1 without any.
_FIRST_OTHER = """
int32_t first_other(const float *x, int32_t count, float scale, int32_t reciprocal,
                    int32_t exponent, int32_t bits, int32_t least, int32_t margin);
int32_t first_other(const float *x, int32_t count, float scale, int32_t reciprocal,
                    int32_t exponent, int32_t bits, int32_t least, int32_t margin) {
    for (int32_t i = 0; i < count; i++) {
        int32_t got = utvm_quantize_by(x[i], scale, reciprocal, exponent, bits, least, margin);
        if (got != utvm_quantize(x[i] / scale)) {
            return i;
        }
    }
    return -1;
}
"""


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The header's functions under names of their own."""
    lines = [PREAMBLE]
    for name, arity in _FUNCTIONS.items():
        parameters = ", ".join(f"int32_t a{i}" for i in range(arity))
        arguments = ", ".join(
            f"(uint32_t)a{i}" if name == "utvm_leading_zeros" else f"a{i}" for i in range(arity)
        )
        lines.append(f"int32_t call_{name}({parameters});")
        lines.append(f"int32_t call_{name}({parameters}) {{ return {name}({arguments}); }}")
    lines.append("int32_t call_utvm_quantize(float x);")
    lines.append("int32_t call_utvm_quantize(float x) { return utvm_quantize(x); }")
    lines.append(_FIRST_OTHER)
    source = tmp_path_factory.mktemp("header") / "header.c"
    source.write_text("\n".join(lines) + "\n")
    return compile_library(source)


def away_from_zero(value: Fraction) -> int:
    magnitude = math.floor(abs(value) + Fraction(1, 2))
    return magnitude if value >= 0 else -magnitude


@given(value=INT32, multiplier=MULTIPLIERS, shift=st.integers(-31, 31))
@example(value=-(2**31), multiplier=2**31 - 1, shift=0)
@example(value=-(2**31), multiplier=2**31 - 1, shift=-1)
@example(value=2**31 - 1, multiplier=2**31 - 1, shift=-1)
@example(value=-3, multiplier=2**30, shift=0)
def test_requantize(c: ctypes.CDLL, value: int, multiplier: int, shift: int) -> None:
    wrapped = (value << max(shift, 0)) + 2**31
    product = Fraction((wrapped % 2**32 - 2**31) * multiplier, 2**31)
    first = math.floor(product + Fraction(1, 2))
    expected = away_from_zero(Fraction(first, 2 ** max(-shift, 0)))
    assert requantized(value, multiplier, shift) == expected
    assert c.call_utvm_requantize(value, multiplier, shift) == expected


@given(value=INT32, scale=st.floats(1e-12, 1000.0))
@example(value=-(2**31), scale=1000.0)
@example(value=-(2**31), scale=2.0**-31)
@example(value=5, scale=0.5)
@example(value=-5, scale=0.5)
def test_requantize_exact(c: ctypes.CDLL, value: int, scale: float) -> None:
    exact = away_from_zero(Fraction(value) * Fraction(scale))
    expected = min(max(exact, -1024), 1024)
    assert c.call_utvm_requantize_exact(value, *exact_multiplier(scale)) == expected


@given(value=INT32, bits=st.integers(1, 40))
@example(value=2**31 - 1, bits=1)
@example(value=-(2**31), bits=1)
@example(value=-(2**31), bits=31)
@example(value=-(2**31), bits=32)
def test_rounded_shift(c: ctypes.CDLL, value: int, bits: int) -> None:
    expected = away_from_zero(Fraction(value, 2**bits))
    assert c.call_utvm_rounded_shift(value, bits) == expected


@given(value=INT32, divisor=st.integers(1, 2**16))
def test_divide(c: ctypes.CDLL, value: int, divisor: int) -> None:
    if abs(value) < 2**30:
        assert c.call_utvm_divide(value, divisor) == away_from_zero(Fraction(value, divisor))


@given(left=INT32, right=INT32)
def test_add_wraps(c: ctypes.CDLL, left: int, right: int) -> None:
    assert c.call_utvm_add(left, right) == (left + right + 2**31) % 2**32 - 2**31


@given(st.floats(width=32))
@example(math.inf)
@example(-math.inf)
@example(math.nan)
@example(0.49999997)
@example(-0.5)
@example(127.5)
def test_quantize_float(c: ctypes.CDLL, value: float) -> None:
    if math.isnan(value):
        expected = -131072
    elif abs(value) > 131072:
        expected = 131072 if value > 0 else -131072
    else:
        expected = away_from_zero(Fraction(value))
    function = c.call_utvm_quantize
    function.argtypes = [ctypes.c_float]
    assert function(value) == expected


@given(
    scale=st.floats(2.0**-60, 2.0**60, width=32) | st.floats(2.0**-126, 2.0**126, width=32),
    dtype=st.sampled_from(["int8", "int16"]),
    seed=st.integers(0, 2**32 - 1),
)
@example(scale=0.5, dtype="int8", seed=0)
@example(scale=2.0**-9 - 2.0**-33, dtype="int16", seed=0)
def test_quantize_by_reciprocal(c: ctypes.CDLL, scale: float, dtype: str, seed: int) -> None:
    """Near halves, of all sizes, and of all patterns of bits; as the quotient in float32."""
    found = reciprocal_of(scale, dtype)
    if found is None:
        assert not 2.0**-60 <= scale <= 2.0**60
        return
    rng = np.random.default_rng(seed)
    most = 300 if dtype == "int8" else 70_000
    whole = rng.integers(-most, most, 500)
    with np.errstate(over="ignore", under="ignore"):
        halves = ((whole + 0.5) * scale).astype(np.float32)
        sizes = (scale * 2.0 ** rng.uniform(-40, 40, 300)).astype(np.float32)
    near = halves.view(np.int32)[:, None] + np.arange(-3, 4, dtype=np.int32)
    words = rng.integers(0, 2**32, 300, np.uint32)
    parts = (near.reshape(-1).view(np.float32), sizes, -sizes, words.view(np.float32))
    values = np.ascontiguousarray(np.concatenate(parts))
    first_other, (reciprocal, exponent) = c.first_other, found
    first_other.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_float] + [ctypes.c_int32] * 5
    numbers = reciprocal - 2**32, exponent, *FRACTIONS[dtype]
    other = first_other(values.ctypes.data, values.size, scale, *numbers)
    assert other == -1, (values[other], scale)


@given(st.integers(1, 2**31 - 1))
def test_reciprocal(c: ctypes.CDLL, total: int) -> None:
    zeros = 32 - total.bit_length()
    assert c.call_utvm_leading_zeros(total) == zeros
    fraction = Fraction(total * 2**zeros, 2**31)
    assert abs(Fraction(c.call_utvm_reciprocal(total), 2**31) - 1 / fraction) < Fraction(1, 2**27)


@given(value=INT32, bits=st.integers(0, 2))
def test_saturated_shift(c: ctypes.CDLL, value: int, bits: int) -> None:
    expected = min(max(value << bits, -(2**31)), 2**31 - 1)
    assert c.call_utvm_saturated_shift(value, bits) == expected


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (2**30, 1)),
        (0.5, (2**30, 0)),
        (0.75, (3 * 2**29, 0)),
        (256.0, (2**30, 9)),
        (1.0 - 2.0**-40, (2**30, 1)),  # rounds up to 2**31, which is halved
        (2.0**-32, (2**30, -31)),
        (2.0**-33, (0, 0)),
        (2.0**-32 * (1 - 2.0**-40), (2**30, -31)),
    ],
)
def test_quantize_multiplier(scale: float, expected: tuple[int, int]) -> None:
    assert quantize_multiplier(scale) == expected


@given(st.floats(2.0**-31, 2.0**20))
def test_quantize_multiplier_is_close(scale: float) -> None:
    multiplier, shift = quantize_multiplier(scale)
    assert 2**30 <= multiplier < 2**31
    found = Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(found / Fraction(scale) - 1) <= Fraction(1, 2**31)


def test_exact_multiplier_of_nothing_visible() -> None:
    assert exact_multiplier(0.0) == ExactMultiplier(0, 0, 27)
    assert exact_multiplier(1e-30) == ExactMultiplier(0, 0, 1)


@given(scale=st.floats(1e-9, 1e4), count=st.integers(1, 10**6))
def test_mean_multiplier_is_close(scale: float, count: int) -> None:
    multiplier, shift = mean_multiplier(scale, count)
    assert 0 <= multiplier < 2**31
    assert shift >= -31
    if shift > -31:
        found = multiplier * 2.0 ** (shift - 31)
        assert found == pytest.approx(scale / count, rel=2.0**-28)


def test_folding_wraps_like_the_accumulator() -> None:
    weights = np.array([[[127, 127]], [[-128, 1]]], dtype=np.int8)
    bias = np.array([-(2**31), 10], dtype=np.int32)
    folded = fold_input_offset(bias, weights, 100)
    assert folded.dtype == np.int32
    assert folded.tolist() == [2**31 - 25400, 12710]


def test_exponential_table_falls_from_one_to_zero() -> None:
    table = exponential_table(0.1, 1.0)
    assert table[0] == 2**31 - 1
    np.testing.assert_allclose(table / 2.0**31, np.exp(-0.1 * np.arange(256)), atol=2e-6)
    assert (np.diff(table) <= 0).all()
    # The multiplier of 4.0 shifts left by 29, and 31 * 2**26 / 2**29 is the largest difference that
    # the reference evaluates; all after it count as nothing.
    assert np.flatnonzero(exponential_table(4.0, 1.0)).max() == 3


@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_a_factor_beyond_float32_is_refused(scale: float) -> None:
    with pytest.raises(CompileError, match=r"make the factor (inf|nan), beyond float32"):
        quantize_multiplier(scale)


def test_a_factor_that_shifts_beyond_32_bits_is_refused() -> None:
    assert quantize_multiplier(2.0**31 - 1.0) == (2**31 - 1, 31)
    with pytest.raises(CompileError, match=r"from 2\^31 on the reference's results differ"):
        quantize_multiplier(2.0**31)
