"""One rounding in 64 bits is taken only where it gives the reference's output for each sum."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from utvm_deploy.kernels.native.scaling import wide_scaling

SCALES = st.floats(2.0**-23, 0.5, exclude_max=True) | st.integers(2, 22).map(
    lambda shift: 2.0**-shift
)


def reference(value: int, scale: float, zero_point: int) -> int:
    """Round the exact product, with halves away from zero."""
    exact = value * Fraction(scale)
    magnitude = int(abs(exact) + Fraction(1, 2))
    rounded = (magnitude if exact >= 0 else -magnitude) + zero_point
    return min(max(rounded, -128), 127)


def ours(value: int, words: list[int], zero_point: int) -> int:
    multiplier, low, high, shift = words
    offset = (high << 32) + (low & 0xFFFFFFFF)
    return min(max((value * multiplier + offset) >> (shift + 32), -128), 127)


@given(SCALES, st.integers(-128, 127), st.integers(-500_000, 500_000), st.integers(0, 300))
def test_every_sum_has_the_output_of_the_reference(
    scale: float, zero_point: int, lowest: int, count: int
) -> None:
    found = wide_scaling(scale, zero_point, lowest, lowest + count)
    sums = range(lowest, lowest + count + 1)
    expected = [reference(value, scale, zero_point) for value in sums]
    # A form that differs at some sum is refused; it differs only close to a half.
    if isinstance(found, str):
        fraction, shift = np.frexp(scale)
        multiplier = min(round(float(fraction) * 2.0**31), 2**31 - 1)
        offset = (1 << (30 - int(shift))) + (zero_point << (31 - int(shift)))
        own = [(value * multiplier + offset) >> (31 - int(shift)) for value in sums]
        assert [min(max(value, -128), 127) for value in own] != expected
        assert "no multiplier" in found
        return
    words = [int(word) for word in found]
    assert [ours(value, words, zero_point) for value in sums] == expected


def test_halves_on_both_sides_of_zero_round_away_from_it() -> None:
    for zero_point in (-128, -5, 0, 100):
        found = wide_scaling(0.25, zero_point, -2000, 2000)
        assert not isinstance(found, str), found
        words = [int(word) for word in found]
        for value in range(-2000, 2001):
            assert ours(value, words, zero_point) == reference(value, 0.25, zero_point)
