"""Fixed-point requantization on the host: what the passes and the kernels' tables have in common.

The functions equal LiteRT 2.3.0's reference kernels and those of ``kernels/utvm_kernels.h``.
"""

from __future__ import annotations

import math
from functools import lru_cache

from utvm_deploy.base.errors import CompileError

#: The bits by which the reference raises both inputs of ADD and SUB before it rescales them.
HEADROOM_BITS = {"int8": 20, "int16": 15}
#: Of a 32-bit number.
_MOST_LEFT_SHIFT = 31


class FactorError(CompileError):
    """The scales of an operator make a factor for which the reference has no defined result."""


@lru_cache(maxsize=4096)
def quantize_multiplier(scale: float) -> tuple[int, int]:
    """``scale`` as (multiplier, shift): scale = multiplier * 2**(shift - 31).

    The multiplier is from 2**30 to 2**31 - 1, or zero. A positive shift means a left shift.

    Raises FactorError if the scale is not finite, or 2**31 and more. The reference shifts a 32-bit
    number by ``shift`` bits. C does not define a shift of 32, so processors differ there.
    """
    if scale == 0.0:
        return 0, 0
    if not math.isfinite(scale):
        raise FactorError(
            f"its scales make the factor {scale}, beyond float32; convert the model again"
        )
    fraction, shift = math.frexp(scale)
    # frexp's fraction has 53 bits, so the sum below is exact, and floor rounds half up. The
    # reference rounds half away from zero. No scale is negative, so both give the same.
    multiplier = math.floor(fraction * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier //= 2
        shift += 1
    if shift < -31:
        return 0, 0
    if shift > _MOST_LEFT_SHIFT:
        raise FactorError(
            f"its scales make the factor {scale:.6g}, and from 2^31 on the reference's results "
            "differ between processors; convert the model again with usual scales"
        )
    return multiplier, shift


def mean_multiplier(scale: float, count: int) -> tuple[int, int]:
    """``scale / count`` as the reference rounds it: the scale to nearest, the quotient down."""
    multiplier, shift = quantize_multiplier(scale)
    # The most bits that the quotient can keep without a right shift of more than 31 bits.
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra


def requantized(value: int, multiplier: int, shift: int) -> int:
    """The result of ``utvm_requantize``, for tables that the host computes."""
    product = high_product(wrap_int32(value << max(shift, 0)), multiplier)
    return rounded_shift(product, max(-shift, 0))


def short_multiplier(multiplier: int) -> int:
    """The 15 bits of a multiplier that the reference keeps for 64-bit sums."""
    return min((multiplier + (1 << 15)) >> 16, 0x7FFF)


def requantized_wide(value: int, multiplier: int, shift: int) -> int:
    """A 64-bit sum times a multiplier of which 15 bits count, rounded once, half up.

    ``shift`` is at most 14.
    """
    return (value * short_multiplier(multiplier) + (1 << (14 - shift))) >> (15 - shift)


def high_product(left: int, right: int) -> int:
    """left * right / 2**31, rounded half up. No caller has (-2**31)**2, which would saturate."""
    return (left * right + (1 << 30)) >> 31


def rounded_shift(value: int, bits: int) -> int:
    """value / 2**bits, rounded half away from zero."""
    magnitude = (abs(value) + (1 << bits >> 1)) >> bits
    return magnitude if value >= 0 else -magnitude


def wrap_int32(value: int) -> int:
    """``value`` modulo 2**32, as a signed 32-bit number."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
