"""Requantization in three instructions: one rounding instead of two, where that gives every output.

The reference rounds twice (``scaling.py``), and halves away from zero. This form is

    output = saturated(((sum * multiplier) >> 32) + offset) >> shift

which is SMMLA, ASR and SSAT. Outputs grow with the sum in both forms. So they are equal, within the
layer's limits, if each output between the limits begins at the same sum. With M for the multiplier,
each output k that begins at the sum T asks for a constant C between two bounds:

    M T + C >= k 2**(32 + shift),    M (T - 1) + C < k 2**(32 + shift)

C is the offset times 2**32, plus M times what is added to the bias. The bias is searched so that C
is within the bounds of all outputs. A layer with outputs on both sides of its zero point has no
such C, because the halves of both sides round in opposite directions. A fused RELU or RELU6 cuts
off one side.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import INT8_MIN
from utvm_deploy.kernels.native.by_content import by_content
from utvm_deploy.kernels.native.scaling import Scaling, extremes

Wide: TypeAlias = NDArray[np.int64]
#: What is added to the bias at most.
_REACH = 1 << 20
#: Products are below 2**62 with these: a right shift, and its sum with ``factor_bits``.
_LARGEST_SHIFT, _LARGEST_SUM = 20, 24
_WORD = 1 << 32


@by_content
def single_scaling(
    scaling: Scaling,
    weights: Array,
    zero_point: int,
    limits: tuple[int, int],
    *,
    factor_bits: int | Array = 0,
    lifted: bool = False,
) -> Scaling | None:
    """The tables of the form with one rounding; None if a channel has none.

    ``scaling`` is that of ``short_scaling``, and ``weights`` have the channel first. The kernel
    sums up 2**factor_bits times each sum; so does the bias of the result. ``factor_bits`` is one
    number, or one for each channel. ``lifted``: the bias is so large that no sum is negative.
    """
    lowest, highest = (one.astype(np.int64) for one in extremes(scaling.bias, weights))
    bits: Wide = np.zeros_like(lowest) + np.asarray(factor_bits, dtype=np.int64)
    shifts = int(scaling.shift.max()), int((scaling.shift.astype(np.int64) + bits).max())
    if shifts[0] > _LARGEST_SHIFT or shifts[1] > _LARGEST_SUM:
        return None
    if max(_magnitude(lowest << bits), _magnitude(highest << bits)) >= 1 << 31:
        return None
    multiplier, right = scaling.multiplier.astype(np.int64), scaling.shift.astype(np.int64)
    is_constant = multiplier == 0
    least, most = _bounds(
        np.where(is_constant, 1 << 30, multiplier), right, (lowest, highest), zero_point, limits,
        bits,
    )  # fmt: skip
    if bool((~is_constant & (least >= most)).any()):
        return None
    shift = right - 1 + bits
    bias = scaling.bias.astype(np.int64) << bits
    lift = _REACH - (lowest << bits) if lifted else np.zeros_like(bias)
    offset = (scaling.offset.astype(np.int64) >> right) << shift
    for channel in np.flatnonzero(~is_constant):
        m, up = int(multiplier[channel]), int(lift[channel])
        low, high = int(least[channel]) - m * up, int(most[channel]) - m * up
        added = _added(m, low, high - low)
        if added is None:
            return None
        bias[channel] += up + added
        offset[channel] = -((added * m - low) // _WORD)
    ends = np.stack([lowest, highest]) << bits
    ends = ends + bias - (scaling.bias.astype(np.int64) << bits)
    scaled = (ends * multiplier >> 32) + offset
    if max(_magnitude(ends), _magnitude(scaled), _magnitude(offset)) >= 1 << 31:
        return None
    return Scaling(*(one.astype(np.int32) for one in (bias, multiplier, offset, shift)))


def _magnitude(values: Wide) -> int:
    return int(np.abs(values).max())


def first_sums(multiplier: Wide, right: Wide, outputs: Wide) -> Wide:
    """The least sum of each channel for which the reference gives each output, before its limits.

    ``multiplier`` and the right shifts are [channels, 1], ``outputs`` are without the zero point.
    """
    # An output above 0 begins at a half, one below 0 after it.
    product = (outputs << right) - (1 << (right - 1)) + (outputs <= 0)
    # The product begins half of 2**31 earlier.
    found: Wide = -(-((product << 31) - (1 << 30)) // multiplier)
    return found


def _bounds(
    multiplier: Wide,
    right: Wide,
    ends: tuple[Wide, Wide],
    zero_point: int,
    limits: tuple[int, int],
    factor_bits: Wide,
) -> tuple[Wide, Wide]:
    """The least C of each channel, and the C above the greatest one."""
    m, s, factor_bits = multiplier[:, None], right[:, None], factor_bits[:, None]
    lowest, highest = (one[:, None] for one in ends)
    outputs = np.arange(max(limits[0], INT8_MIN) + 1, limits[1] + 1, dtype=np.int64)[None, :]
    firsts = np.clip(first_sums(m, s, outputs - zero_point), lowest, highest + 1)
    starts = outputs << (s + 31 + factor_bits)
    far = np.int64(1) << 62
    least = np.where(firsts <= highest, starts - (m * firsts << factor_bits), -far)
    most = np.where(firsts > lowest, starts - (m * (firsts - 1) << factor_bits), far)
    # Without an output between the limits, any C does.
    return least.max(axis=1, initial=-far), most.min(axis=1, initial=far)


def _added(multiplier: int, least: int, width: int) -> int | None:
    """What to add to the bias so that an offset exists, nearest to 0; None if there is nothing."""
    low = least % _WORD
    high = low + width - 1
    if low == 0 or high >= _WORD:
        return 0
    up = _first_multiple(multiplier, _WORD, low, high)
    down = _first_multiple(-multiplier, _WORD, low, high)
    some = [-down] if down is not None and down <= _REACH else []
    some += [up] if up is not None and up < _REACH else []
    return min(some, key=abs, default=None)


def _first_multiple(step: int, modulus: int, low: int, high: int) -> int | None:
    """The least number of times that ``step`` is between ``low`` and ``high``, modulo ``modulus``.

    It is as Euclid's algorithm: the remainders of both numbers give a smaller question.
    """
    if low == 0:
        return 0
    step %= modulus
    if step == 0:
        return None
    if 2 * step > modulus:
        return _first_multiple(modulus - step, modulus, modulus - high, modulus - low)
    times = -(-low // step)
    if times * step <= high:
        return times
    rounds = _first_multiple(modulus % step, step, -high % step, -low % step)
    return None if rounds is None else -(-(low + modulus * rounds) // step)
