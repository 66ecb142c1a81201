"""Requantization in five instructions, and the proof that a layer may use it.

The reference requantizes a sum a by a multiplier m and a right shift s. It rounds twice.
First, q is round_half_up(a * m / 2**31). Then it rounds q / 2**s, with halves away from zero.

SMMLAR of x = 2 a gives round_half_up(x * m / 2**32), the same q, and adds an offset t. The second
rounding is (q + t) >> s with t = 2**(s - 1) + (zero point << s) - [a < 0]. It takes the sign of a,
and the reference that of q. They differ only for q = 0, where t - 1 and t give the same for every
s >= 1. Nothing overflows while |a| < 2**30 and s <= 22.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN, requantized
from utvm_deploy.kernels.native.by_content import by_content

#: Right shifts and magnitudes of sums for which the proof holds.
SMALLEST_SHIFT, LARGEST_SHIFT = 1, 22
REACH_LIMIT = 1 << 30


class Scaling(NamedTuple):
    """Tables with an entry for each output channel."""

    bias: Array
    multiplier: Array
    offset: Array
    shift: Array


def extremes(bias: Array, weights: Array) -> tuple[Array, Array]:
    """The smallest and largest sum of each channel; ``weights`` has the channel first."""
    flat = weights.reshape(weights.shape[0], -1).astype(np.int64)
    ends = np.stack([flat * INT8_MIN, flat * INT8_MAX])
    wide = bias.astype(np.int64)
    return wide + ends.min(axis=0).sum(axis=1), wide + ends.max(axis=0).sum(axis=1)


@by_content
def short_scaling(
    bias: Array,
    weights: Array,
    multiplier: Array,
    shift: Array,
    zero_point: int,
    *,
    limit: int = REACH_LIMIT,
) -> Scaling | str:
    """The tables of the short form, or why it would not be exact.

    ``shift`` is the reference's: negative for right shifts. ``bias`` holds the input's offset.
    The absolute value of each sum must be below ``limit``, at most ``REACH_LIMIT``.
    """
    lowest, highest = extremes(bias, weights)
    same = constant_outputs(bias, weights, multiplier, shift, zero_point)
    bias, multiplier, right = bias.copy(), multiplier.copy(), -shift.astype(np.int64)
    base = np.full(bias.shape, zero_point, dtype=np.int64)
    for channel, output in same.items():
        # A bias of 0 gives the same output.
        bias[channel], multiplier[channel] = 0, 0
        right[channel], base[channel] = SMALLEST_SHIFT, output
        lowest[channel] = highest[channel] = 0
    most = int(np.maximum(np.abs(lowest), np.abs(highest)).max())
    if most >= limit:
        return f"an accumulator can reach {most}"
    if int(right.min()) < SMALLEST_SHIFT or int(right.max()) > LARGEST_SHIFT:
        return f"the scales need right shifts from {right.min()} to {right.max()}"
    offset = (base << right) + (1 << (right - 1))
    return Scaling(bias, multiplier, offset.astype(np.int32), right.astype(np.int32))


def constant_outputs(
    bias: Array, weights: Array, multiplier: Array, shift: Array, zero_point: int
) -> dict[int, int]:
    """The channels of which every sum gives the same output, before the layer's limits, and it.

    The tables are as ``short_scaling`` takes them.
    """
    lowest, highest = extremes(bias, weights)
    found = {}
    for channel in range(bias.size):
        low, high = (
            _output(int(end[channel]), int(multiplier[channel]), int(shift[channel]), zero_point)
            for end in (lowest, highest)
        )
        if low is not None and low == high:
            found[channel] = low
    return found


# Channels of equal scales and sums are common where a model has one scale for all.
@lru_cache(maxsize=4096)
def _output(value: int, multiplier: int, shift: int, zero_point: int) -> int | None:
    """The reference's output before the layer's limits; None if the shifted sum wraps."""
    if not -(2**31) <= value << max(shift, 0) < 2**31:
        return None
    scaled = requantized(value, multiplier, shift) + zero_point
    return min(max(scaled, INT8_MIN), INT8_MAX)


def _dense_output(value: int, scale: float, zero_point: int) -> int:
    """The reference's output of a fully connected layer, before the layer's limits."""
    numerator, denominator = scale.as_integer_ratio()
    steps = (2 * abs(value) * numerator + denominator) // (2 * denominator)
    return min(max((steps if value >= 0 else -steps) + zero_point, INT8_MIN), INT8_MAX)


@lru_cache(maxsize=1024)
def wide_scaling(scale: float, zero_point: int, lowest: int, highest: int) -> Array | str:
    """Multiplier, offset (low word, high word) and shift - 32, to round once in 64 bits.

    The reference multiplies by the scale as a double and rounds halves away from zero. Both it and
    (a * m + offset) >> shift grow with a. So they agree on all sums from ``lowest`` to ``highest``
    if each output begins at the same sum. For a multiplier, each output bounds the offset from both
    sides. The nearest multiplier with an offset within all bounds is taken.
    """
    fraction, exponent = math.frexp(scale)
    shift = 31 - exponent
    numerator, denominator = scale.as_integer_ratio()
    if not 32 <= shift <= 54:
        ends = [_dense_output(end, scale, zero_point) for end in (lowest, highest)]
        if ends[0] == ends[1]:
            return np.array([0, 0, ends[0], 0], np.int32)  # as of weights that are all zeros
        return f"the scale {scale:g} needs a shift by {shift}"

    def reference(output: int) -> int:
        """The first sum of which the reference makes ``output`` or more."""
        steps = output - zero_point
        if steps > 0:
            return _ceiling((2 * steps - 1) * denominator, 2 * numerator)
        return 1 - _ceiling((1 - 2 * steps) * denominator, 2 * numerator)

    outputs = range(INT8_MIN + 1, INT8_MAX + 1)
    firsts = [(k << shift, min(max(reference(k), lowest), highest + 1)) for k in outputs]
    nearest = min(round(fraction * 2.0**31), (1 << 31) - 1)
    middle = (1 << (shift - 1)) + (zero_point << shift)
    # A larger multiplier rounds halves away from zero, as the reference does.
    for multiplier in (nearest + step for step in (0, 1, -1, 2, -2)):
        least = max(
            (start - multiplier * first for start, first in firsts if first <= highest),
            default=middle,
        )
        most = min(
            (start - multiplier * (first - 1) for start, first in firsts if first > lowest),
            default=middle + 1,
        )
        offset = min(max(middle, least), most - 1)
        if least <= offset and multiplier < 1 << 31:
            break
    else:
        return f"no multiplier gives every output of the scale {scale:g}"
    words = [multiplier, offset & 0xFFFFFFFF, (offset >> 32) & 0xFFFFFFFF, shift - 32]
    found = np.array(words, dtype=np.int64).astype(np.uint32).view(np.int32)
    found.flags.writeable = False
    return found


def _ceiling(dividend: int, divisor: int) -> int:
    """The quotient of integers, rounded up."""
    return -(-dividend // divisor)
