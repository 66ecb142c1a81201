"""Functions of real numbers, in float32 as the reference evaluates them for its tables.

``lookup.py`` and ``int16_unary.py`` make tables of them. RSQRT of a byte is computed with integers,
as in the reference.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Gelu
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    high_product,
    quantize_multiplier,
    requantized,
    rounded_shift,
)

#: From a quantized value to a quantized value, which may be outside of the type.
Function = Callable[[int], int]

# Steps of the output's scale: larger values are far outside of a byte.
_FAR = 1024.0
_RSQRT_BITS = 20
_MOST_INT32 = (1 << 31) - 1
_HALF_ROOT_OF_TWO = 1518500250  # Q0.31
_THREE_HALVES = (1 << 28) + (1 << 27)  # Q3.28, as _ONE
_ONE = 1 << 28
_NEWTON_STEPS = 5


@functools.cache
def single(name: str) -> Callable[[Any], Any]:
    """The float32 form of a function of ``math.h``, such as ``erfcf`` for ``erfc``.

    The reference calls the same function of the C library. Its last bit is not always that of the
    rounded double-precision function, and differs between versions of the library. Without a C
    library, the double-precision function is rounded.
    """
    library = ctypes.util.find_library("m")
    found = getattr(ctypes.CDLL(library), f"{name}f", None) if library else None
    if found is None:
        return lambda x: np.float32(getattr(math, name)(float(x)))
    found.argtypes, found.restype = [ctypes.c_float], ctypes.c_float
    return lambda x: np.float32(found(float(x)))


def real_function(op: Operation) -> Callable[[Any], Any]:
    """An operator as a function from float32 to float32."""
    return _REAL[op.kind](op)


def _logistic(op: Operation) -> Callable[[Any], Any]:
    def real(x: Any) -> Any:
        one = np.float32(1)
        with np.errstate(over="ignore"):
            return one / (one + np.float32(np.exp(np.float64(-x))))

    return real


def _log(op: Operation) -> Callable[[Any], Any]:
    """A value of at most 0 becomes the least output."""
    _, result = op.ends
    lowest = op.result.element.limits[0]
    least = np.float32(lowest - result.zero_point) * np.float32(result.scale)
    return lambda x: single("log")(x) if x > 0 else least


def _inverse_root(op: Operation) -> Callable[[Any], Any]:
    """Zero becomes the largest output; so does what is negative, at which the reference stops."""
    _, result = op.ends
    most = np.float32(op.result.element.limits[1]) * np.float32(result.scale)
    return lambda x: np.float32(1) / np.sqrt(x) if x > 0 else most


def _gelu(op: Operation) -> Callable[[Any], Any]:
    """x times the normal distribution function of x, by erfc or approximately by tanh."""
    half, one = np.float32(0.5), np.float32(1)
    by_root_of_two = np.float32(-math.sqrt(0.5))
    cubic, slope = np.float32(0.044715), np.float32(math.sqrt(2 / math.pi))

    def exact(x: Any) -> Any:
        return half * x * single("erfc")(x * by_root_of_two)

    def approximate(x: Any) -> Any:
        return half * x * (one + single("tanh")(slope * (x + cubic * x * x * x)))

    return approximate if op.attributes(Gelu).approximates else exact


def square_root(op: Operation) -> Function:
    """SQRT in float32; the only function whose result is rounded towards zero."""
    source, result = op.ends

    def quantized(q: int) -> int:
        real = np.float32(source.scale) * np.float32(max(q - source.zero_point, 0))
        return int(np.sqrt(real) / np.float32(result.scale)) + result.zero_point

    return quantized


def inverse_root(op: Operation) -> Function:
    """RSQRT of a byte in fixed point; zero becomes the largest output."""
    source, result = op.ends
    scale = float(np.sqrt(np.float32(source.scale)) * np.float32(result.scale))
    multiplier, shift = quantize_multiplier(1.0 / scale)

    def quantized(q: int) -> int:
        value = q - source.zero_point
        if value <= 0:
            return 127
        inverse, bits = inverse_root_multiplier(value)
        fraction = requantized(1, inverse, bits + _RSQRT_BITS)
        return requantized(fraction, multiplier, shift - _RSQRT_BITS) + result.zero_point

    return quantized


def inverse_root_multiplier(value: int) -> tuple[int, int]:
    """1 / sqrt(value) as multiplier and shift: what ``utvm_inverse_root.h`` computes in C."""
    if value <= 1:
        return _MOST_INT32, 0
    right = 11
    while value >= 1 << 29:
        value //= 4
        right += 1
    pairs = (32 - value.bit_length() - 1) // 2 - 1
    right -= pairs
    half = rounded_shift(value << 2 * pairs >> 1, 1)
    x = _ONE
    for _ in range(_NEWTON_STEPS):
        cube = _saturated(high_product(high_product(x, x), x) << 6)
        x = _saturated((high_product(_THREE_HALVES, x) - high_product(half, cube)) << 3)
    inverse = high_product(x, _HALF_ROOT_OF_TWO)
    return (inverse << -right, 0) if right < 0 else (inverse, -right)


def _saturated(value: int) -> int:
    return min(max(value, -_MOST_INT32 - 1), _MOST_INT32)


def through_float(op: Operation) -> Function:
    """A real function of a byte's real value, at the output's scale."""
    function = real_function(op)
    source, result = op.ends
    scale, inverse = np.float32(source.scale), np.float32(1) / np.float32(result.scale)

    def quantized(q: int) -> int:
        with np.errstate(over="ignore"):
            real = function(scale * np.float32(q - source.zero_point))
            steps = float(np.float32(real) * inverse)
        limited = min(max(steps, -_FAR), _FAR)
        return math.floor(abs(limited) + 0.5) * (1 if steps >= 0 else -1) + result.zero_point

    return quantized


_REAL: dict[str, Callable[[Operation], Callable[[Any], Any]]] = {
    "ELU": lambda op: lambda x: single("expm1")(x) if x < 0 else x,
    "EXP": lambda op: single("exp"),
    "GELU": _gelu,
    "LOG": _log,
    "LOGISTIC": _logistic,
    "RSQRT": _inverse_root,
    "TANH": lambda op: single("tanh"),
}

#: Kind -> the function of a quantized value that the operator is.
REAL_FUNCTIONS: dict[str, Callable[[Operation], Function]] = {
    **dict.fromkeys(_REAL, through_float),
    "RSQRT": inverse_root,
    "SQRT": square_root,
}
