"""Fixed-point requantization: scales as multipliers and shifts, and TIR calls of C functions.

The C functions are in ``kernels/utvm_kernels.h``, which the compiler puts into the generated
sources. Both are bit-exact with LiteRT 2.3.0's reference kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.graph.rounding import (
    high_product as high_product,
)
from utvm_deploy.graph.rounding import (
    mean_multiplier as mean_multiplier,
)
from utvm_deploy.graph.rounding import (
    quantize_multiplier as quantize_multiplier,
)
from utvm_deploy.graph.rounding import (
    requantized as requantized,
)
from utvm_deploy.graph.rounding import (
    rounded_shift as rounded_shift,
)
from utvm_deploy.graph.rounding import (
    short_multiplier as short_multiplier,
)
from utvm_deploy.graph.rounding import (
    wrap_int32 as wrap_int32,
)
from utvm_deploy.kernels.contract.lazy_tvm import tirx

INT8_MIN = -128
INT8_MAX = 127

# At this scale, every value except zero leaves the int8 range, with any zero point.
_LARGEST_EXACT_SCALE = 1024.0


def header() -> str:
    """The text of the static inline C functions that the kernels call; needs only stdint.h."""
    kernels = resources.files("utvm_deploy.kernels")
    return kernels.joinpath("utvm_kernels.h").read_text(encoding="ascii")


def quantize_multipliers(scales: Iterable[float]) -> tuple[Array, Array]:
    """The multipliers and shifts of several scales, as int32 tables."""
    multipliers, shifts = zip(*map(quantize_multiplier, scales), strict=True)
    return np.array(multipliers, dtype=np.int32), np.array(shifts, dtype=np.int32)


class ExactMultiplier(NamedTuple):
    """scale = (high * 2**26 + low) * 2**-(shift + 26), exactly.

    The fields are integers on the host and expressions in TIR.
    """

    high: Any
    low: Any
    shift: Any


def exact_multiplier(scale: float) -> ExactMultiplier:
    """``scale`` with all 53 bits of its fraction.

    The reference multiplies by a double in FULLY_CONNECTED. This gives that product in integers.
    """
    fraction, exponent = math.frexp(min(scale, _LARGEST_EXACT_SCALE))
    mantissa = int(fraction * 2.0**53)
    shift = 27 - exponent
    if shift > 62:  # |value * scale| < 1/2 for every 32-bit value
        return ExactMultiplier(0, 0, 1)
    return ExactMultiplier(mantissa >> 26, mantissa & ((1 << 26) - 1), shift)


def fold_input_offset(bias: Array, weights: Array, zero_point: int) -> Array:
    """The bias that lets a kernel multiply raw inputs: bias - zero_point * sum of weights.

    ``weights`` are [outputs, ...]. The result wraps like the reference's 32-bit accumulator, so the
    accumulated value is the same modulo 2**32.
    """
    sums = weights.reshape(weights.shape[0], -1).astype(np.int64).sum(axis=1)
    folded: Array = bias.astype(np.int64) - zero_point * sums
    return folded.astype(np.uint32).view(np.int32)


def requantize(value: Any, multiplier: Any, shift: Any) -> Any:
    """TIR: value * multiplier * 2**(shift - 31), rounded twice (conv, depthwise, add, ...).

    If it gets an int, it returns an int; so do ``add_wrapping`` and ``clamped``.
    """
    if isinstance(value, int):
        return requantized(value, multiplier, shift)
    return tirx.call_pure_extern("int32", "utvm_requantize", value, multiplier, shift)


def requantize_right(value: Any, multiplier: Any, shift: Any) -> Any:
    """TIR: ``requantize`` for values up to 2**30 and shifts from -30 to -1."""
    return tirx.call_pure_extern("int32", "utvm_requantize_right", value, multiplier, shift)


def requantize_int64(value: Any, multiplier: Any, shift: Any) -> Any:
    """TIR: a 64-bit sum times a ``short_multiplier``, rounded once, half up."""
    return tirx.call_pure_extern("int32", "utvm_requantize_wide", value, multiplier, shift)


def requantize_exact(value: Any, multiplier: ExactMultiplier) -> Any:
    """TIR: value * scale with all bits of the scale's fraction (fully connected)."""
    return tirx.call_pure_extern("int32", "utvm_requantize_exact", value, *multiplier)


def add_wrapping(left: Any, right: Any) -> Any:
    """TIR: a 32-bit sum that may wrap, as the reference's accumulators do."""
    if isinstance(left, int):
        return wrap_int32(left + right)
    return tirx.call_pure_extern("int32", "utvm_add", left, right)


def divide_rounded(value: Any, divisor: Any) -> Any:
    """TIR: value / divisor, rounded half away from zero; the divisor is positive."""
    return tirx.call_pure_extern("int32", "utvm_divide", value, divisor)


def clamped(value: Any, low: Any, high: Any, dtype: str = "int8") -> Any:
    """TIR: ``value`` limited to [low, high], as ``dtype``, which holds both limits."""
    if isinstance(value, int):
        return min(max(value, low), high)
    return tirx.call_pure_extern("int32", "utvm_clamp", value, low, high).astype(dtype)
