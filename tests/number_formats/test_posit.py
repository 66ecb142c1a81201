"""The posits of examples/number_formats, checked with exact fractions."""

from __future__ import annotations

import bisect
import functools
from fractions import Fraction
from operator import add, mul, sub, truediv

import numpy as np
import pytest
from format_models import EXAMPLE

from utvm_deploy.graph.number_formats import NumberFormat, format_of
from utvm_deploy.kernels.contract.format_kernel import check_c

RNG = np.random.default_rng(16)


def value(code: int, bits: int) -> Fraction:
    """A posit above 0 with one bit of exponent, read bit by bit."""
    text = f"{code:0{bits - 1}b}"
    run = len(text) - len(text.lstrip(text[0]))
    regime = run - 1 if text[0] == "1" else -run
    rest = text[run + 1 :].ljust(1, "0")
    fraction = Fraction(int(rest[1:] or "0", 2), 1 << len(rest[1:]))
    return (1 + fraction) * Fraction(2) ** (2 * regime + int(rest[0]))


@functools.cache
def values() -> list[Fraction]:
    return [Fraction(0), *(value(code, 16) for code in range(1, 1 << 15))]


@functools.cache
def middles() -> list[Fraction]:
    """A value between two posits belongs to the lower one below the posit of 17 bits between."""
    return [value(2 * code + 1, 17) for code in range(1, (1 << 15) - 1)]


def nearest(exact: Fraction) -> int:
    """The code of an exact value; at the middle the even one."""
    size = abs(exact)
    if not size:
        return 0
    known = middles()
    place = bisect.bisect_left(known, size)
    code = place + 1
    if place < len(known) and known[place] == size:
        code += code & 1
    return code if exact > 0 else (1 << 16) - code


def exact(code: int) -> Fraction:
    return values()[code] if code < 0x8000 else -values()[(1 << 16) - code]


@pytest.fixture(scope="module")
def posit() -> NumberFormat:
    return format_of(EXAMPLE)


def test_all_posits_have_their_values(posit: NumberFormat) -> None:
    codes = np.delete(np.arange(1 << 16), 0x8000).astype(np.uint16)
    floats = posit.decoded(codes)
    assert [Fraction(float(one)) for one in floats] == [exact(int(code)) for code in codes]
    assert np.isnan(posit.decoded(np.array([0x8000], np.uint16)))[0]
    assert np.array_equal(posit.encoded(floats), codes)


def test_floats_become_the_nearest_posit(posit: NumberFormat) -> None:
    exactly = middles()[::7]
    between = np.array([float(one) for one in exactly], np.float32)
    assert [Fraction(float(one)) for one in between] == exactly
    near = [between, *(np.nextafter(between, np.float32(side)) for side in (0, np.inf))]
    drawn = RNG.standard_normal(2000) * 2.0 ** RNG.integers(-40, 40, 2000)
    floats = np.concatenate([*near, -between, drawn.astype(np.float32), [np.float32(1e-45)]])
    floats = floats.astype(np.float32)
    wanted = [nearest(Fraction(float(one))) for one in floats]
    assert posit.encoded(floats).tolist() == wanted
    odd = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert posit.encoded(odd).tolist() == [0x8000] * 3


EXACT = {"add": add, "subtract": sub, "multiply": mul, "divide": truediv}


@pytest.mark.parametrize("operation", EXACT)
def test_operations_are_rounded_once(posit: NumberFormat, operation: str) -> None:
    a, b = RNG.integers(0, 1 << 16, (2, 3000)).astype(np.uint16)
    close = RNG.integers(0x3000, 0x5000, (2, 3000)).astype(np.uint16)
    a, b = np.concatenate([a, close[0], [0, 5, 0]]), np.concatenate([b, close[1], [7, 0, 0]])
    b = np.concatenate([b, (-a[:500].astype(np.int32) & 0xFFFF)]).astype(np.uint16)
    a = np.concatenate([a, a[:500]]).astype(np.uint16)
    found = posit.computed(operation, a, b)
    for one, other, code in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        wanted = 0x8000
        if 0x8000 not in (one, other) and (operation != "divide" or other):
            left, right = exact(one), exact(other)
            wanted = nearest(EXACT[operation](left, right))
        assert code == wanted, f"{operation}({one:#x}, {other:#x})"


def test_comparisons_are_those_of_the_values(posit: NumberFormat) -> None:
    a, b = RNG.integers(0, 1 << 16, (2, 5000)).astype(np.uint16)
    a, b = (np.where(one == 0x8000, 0, one).astype(np.uint16) for one in (a, b))
    with np.errstate(invalid="ignore"):
        left, right = posit.decoded(a), posit.decoded(b)
    assert np.array_equal(posit.computed("less", a, b), left < right)
    assert np.array_equal(posit.decoded(posit.computed("maximum", a, b)), np.maximum(left, right))
    assert np.array_equal(posit.decoded(posit.computed("minimum", a, b)), np.minimum(left, right))


@pytest.mark.tools
def test_c_has_the_bits_of_numpy(posit: NumberFormat) -> None:
    check_c(posit)
