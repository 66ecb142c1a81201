"""The number formats of the package: bfloat16 and float16 for storage, float16 with arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.number_formats.formats import Function, NumberFormat


def _upper_half(x: NDArray[Any]) -> NDArray[Any]:
    """The upper 16 bits of a float32, rounded to nearest, halves to even; each NaN is the same."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = bits + 0x7FFF + (bits >> 16 & 1)
    return np.where(np.isnan(x), 0x7FC0, rounded >> 16).astype(np.uint16)


BFLOAT16 = NumberFormat(
    "bfloat16",
    16,
    Function(
        """
        const uint32_t bits = utvm_bits_of(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            return 0x7fc0u;
        }
        return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
        """,
        _upper_half,
    ),
    Function(
        "return utvm_float_of((uint32_t)x << 16);",
        lambda x: (x.astype(np.uint32) << 16).view(np.float32),
    ),
)

#: Where the core converts between float16 and float32, and where it computes with float16.
_CONVERTS = "defined(__GNUC__) && defined(__ARM_FP) && __ARM_ARCH_PROFILE == 'M'"
_COMPUTES = "defined(__GNUC__) && defined(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC)"
#: IEEE 754's binary16.
FLOAT16 = NumberFormat(
    "float16",
    16,
    Function(
        """
        #if CONVERTS
        float value = 0.0f; // the core converts them, and keeps what a NaN carries
        __asm__("vcvtb.f16.f32 %0, %1" : "+t"(value) : "t"(x));
        return x == x ? (uint16_t)utvm_bits_of(value) : 0x7e00u;
        #else
        const uint32_t bits = utvm_bits_of(x);
        const uint32_t sign = bits >> 16 & 0x8000u;
        const uint32_t magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) {
            return 0x7e00u;
        }
        if (magnitude >= 0x477ff000u) { // 65520, which is rounded to infinity
            return (uint16_t)(sign | 0x7c00u);
        }
        if (magnitude < 0x33000001u) { // at most half of the least number
            return (uint16_t)sign;
        }
        if (magnitude < 0x38800000u) { // a denormal: in units of 2^-24
            const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
            const uint32_t shift = 126u - (magnitude >> 23);
            const uint32_t half = (1u << (shift - 1u)) - 1u;
            return (uint16_t)(sign | (mantissa + half + (mantissa >> shift & 1u)) >> shift);
        }
        const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
        return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
        #endif
        """.replace("CONVERTS", _CONVERTS),
        lambda x: np.where(np.isnan(x), 0x7E00, x.astype(np.float16).view(np.uint16)),
        _CONVERTS,
    ),
    Function(
        """
        #if CONVERTS
        float value; // the core converts them
        __asm__("vcvtb.f32.f16 %0, %1" : "=t"(value) : "t"(utvm_float_of(x)));
        return value;
        #else
        const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
        const uint32_t magnitude = x & 0x7fffu;
        if (magnitude >= 0x7c00u) {
            const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
            return utvm_float_of(sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
        }
        if (magnitude < 0x400u) { // a denormal, which float32 has as a normal number
            const float value = (float)(int32_t)magnitude * 0x1p-24f;
            return utvm_float_of(sign | utvm_bits_of(value));
        }
        return utvm_float_of(sign | ((magnitude << 13) + 0x38000000u));
        #endif
        """.replace("CONVERTS", _CONVERTS),
        lambda x: x.view(np.float16).astype(np.float32),
        _CONVERTS,
    ),
)


def _fused(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
    """``a * b + c``, rounded once, by way of a sum that is rounded to odd.

    A product of two numbers has 22 bits, so it is exact in float32. If the sum is inexact, its last
    bit is made 1. Then the rounding to 11 bits finds the nearest number: float32 has the two bits
    more that it needs (S. Boldo, G. Melquiond: "Emulation of a FMA and correctly rounded sums:
    proved algorithms using rounding to odd", 2008). The error of the sum is exact (D. Knuth:
    TwoSum).
    """
    left, right, added = (one.view(np.float16).astype(np.float32) for one in (a, b, c))
    product = left * right
    total = product + added
    other = total - product
    error = (product - (total - other)) + (added - other)
    bits = total.view(np.int32)
    is_even = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    step = np.where((error < 0) == (total < 0), 1, -1)
    odd = np.where(is_even, bits + step, bits).astype(np.int32)
    return FLOAT16.encoded(odd.view(np.float32))


#: binary16 with arithmetic. What it lacks is computed on float32 and rounded again, which gives
#: IEEE's results: float32 has 24 bits, twice the 11 bits and two more (S. Figueroa: "When is double
#: rounding innocuous?", 1995).
FLOAT16_ARITHMETIC = replace(
    FLOAT16,
    name="float16_arithmetic",
    operations={
        "fma": Function(
            """
            #if COMPUTES
            float total = utvm_float_of(c);
            __asm__("vfma.f16 %0, %1, %2"
                    : "+t"(total)
                    : "t"(utvm_float_of(a)), "t"(utvm_float_of(b)));
            return (uint16_t)utvm_bits_of(total);
            #else
            const float product = FORMAT_decode(a) * FORMAT_decode(b); // exact
            const float added = FORMAT_decode(c);
            const float total = product + added, other = total - product;
            const float error = (product - (total - other)) + (added - other);
            uint32_t bits = utvm_bits_of(total);
            if ((bits & 0x7f800000u) != 0x7f800000u && error != 0.0f && !(bits & 1u)) {
                bits += (error < 0.0f) == (total < 0.0f) ? 1u : 0xffffffffu; // to odd
            }
            return FORMAT_encode(utvm_float_of(bits));
            #endif
            """.replace("FORMAT", "utvm_float16_arithmetic").replace("COMPUTES", _COMPUTES),
            _fused,
            _COMPUTES,
        ),
    },
)

#: Name -> format.
SHIPPED: Mapping[str, NumberFormat] = {
    one.name: one for one in (BFLOAT16, FLOAT16, FLOAT16_ARITHMETIC)
}
