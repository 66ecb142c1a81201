"""A number format with arithmetic: the posit of 16 bits with one bit of exponent.

    utvm verify model.onnx --board mps2_an500 --format examples/number_formats/posit16.py

A posit is a sign, a run of equal bits (the regime), one bit of exponent, and the fraction. Its
value is ``(1 + fraction) * 2^(2 * regime + exponent)``. So numbers near 1 have 12 bits of fraction,
and the others fewer. Zero is 0, and 0x8000 is not a real number. A result is rounded to the nearest
code, never to 0 and never beyond the largest number (J. Gustafson, I. Yonemoto: "Beating Floating
Point at its Own Game", 2017).

All of it is computed with integers: ``split`` gives the sign, the power of two and the significand,
and ``join`` rounds them to a posit.
"""

from __future__ import annotations

import numpy as np

from utvm_deploy import number_formats

HELPERS = """
// The power of two and the significand (bit 15 is set) of a posit above 0.
static inline int32_t posit16_split(uint32_t code, uint32_t *significand) {
    const uint32_t run = code & 0x4000u ? ~code & 0x7fffu : code;
    const int32_t length = run ? utvm_zeros_above(run) - 17 : 15;
    const uint32_t rest = code << (length + 2) & 0xffffu;
    const int32_t regime = code & 0x4000u ? length - 1 : -length;
    *significand = 0x8000u | (rest & 0x7fffu);
    return 2 * regime + (int32_t)(rest >> 15);
}

// The posit nearest to significand * 2^(scale - 31); bit 31 of the significand is set.
static inline uint16_t posit16_join(uint32_t sign, int32_t scale, uint32_t significand) {
    scale = scale > 29 ? 29 : scale < -30 ? -30 : scale;
    const int32_t odd = scale & 1;
    const int32_t regime = (scale - odd) / 2;
    const uint64_t run = regime < 0 ? 1u : (2u << (regime + 1)) - 2u;
    const int32_t dropped = (regime < 0 ? 1 - regime : regime + 2) + 17;
    const uint64_t word = run << 32 | (uint32_t)odd << 31 | (significand & 0x7fffffffu);
    const uint64_t half = (uint64_t)1 << (dropped - 1);
    uint32_t code = (uint32_t)((word + half - 1u + (word >> dropped & 1u)) >> dropped);
    code = code < 1u ? 1u : code > 0x7fffu ? 0x7fffu : code;
    return (uint16_t)(sign ? 0u - code : code);
}

static inline uint32_t posit16_magnitude(uint32_t code) {
    return code & 0x8000u ? (0u - code) & 0xffffu : code;
}
"""

ADD = """
const uint32_t left = posit16_magnitude(a), right = posit16_magnitude(b);
const uint32_t large = left < right ? b : a, small = left < right ? a : b;
uint32_t significand, other;
if (a == 0x8000u || b == 0x8000u || small == 0u) {
    return (uint16_t)(a == 0x8000u || b == 0x8000u ? 0x8000u : large);
}
const int32_t scale = posit16_split(posit16_magnitude(large), &significand);
const int32_t shift = scale - posit16_split(posit16_magnitude(small), &other);
const uint64_t most = (uint64_t)significand << 31;
const uint64_t wide = (uint64_t)other << 31;
// The lowest bit says that bits were lost below it.
const uint64_t less = shift > 47 ? 1u : wide >> shift | ((wide >> shift << shift) != wide);
const uint64_t sum = (large ^ small) & 0x8000u ? most - less : most + less;
if (sum == 0u) {
    return 0u;
}
const int32_t zeros = utvm_zeros_above_wide(sum);
const uint64_t upper = sum << zeros;
return posit16_join(large & 0x8000u, scale + 17 - zeros,
                    (uint32_t)(upper >> 32) | ((uint32_t)upper != 0u));
"""

MULTIPLY = """
if (a == 0x8000u || b == 0x8000u || a == 0u || b == 0u) {
    return a == 0x8000u || b == 0x8000u ? 0x8000u : 0u;
}
uint32_t left, right;
int32_t scale = posit16_split(posit16_magnitude(a), &left);
scale += posit16_split(posit16_magnitude(b), &right);
const uint32_t product = left * right;
const int32_t zeros = utvm_zeros_above(product);
return posit16_join((a ^ b) & 0x8000u, scale + 1 - zeros, product << zeros);
"""

DIVIDE = """
if (a == 0x8000u || b == 0x8000u || b == 0u || a == 0u) {
    return a == 0x8000u || b == 0x8000u || b == 0u ? 0x8000u : 0u;
}
uint32_t left, right;
int32_t scale = posit16_split(posit16_magnitude(a), &left);
scale -= posit16_split(posit16_magnitude(b), &right);
// Shifted by one bit more where the quotient is below 1.
const int32_t below = left < right;
const uint64_t wide = (uint64_t)left << (31 + below);
const uint32_t quotient = (uint32_t)(wide / right);
return posit16_join((a ^ b) & 0x8000u, scale - below, quotient | (wide % right != 0u));
"""

ENCODE = """
const uint32_t bits = utvm_bits_of(x);
const uint32_t magnitude = bits & 0x7fffffffu;
if (magnitude == 0u || magnitude >= 0x7f800000u) {
    return magnitude == 0u ? 0u : 0x8000u;
}
return posit16_join(bits >> 31, (int32_t)(magnitude >> 23) - 127, magnitude << 8 | 0x80000000u);
"""

DECODE = """
uint32_t significand;
if (x == 0u || x == 0x8000u) {
    return utvm_float_of(x ? 0x7fc00000u : 0u);
}
const int32_t scale = posit16_split(posit16_magnitude(x), &significand);
return utvm_float_of((x & 0x8000u) << 16 | (uint32_t)(scale + 127) << 23
                     | (significand & 0x7fffu) << 8);
"""


def highest_bit(x):
    """The position of the highest bit that is set; -1 of 0. Numbers are below 2^53."""
    return np.frexp(x.astype(np.float64))[1] - 1


def magnitude(code):
    code = code.astype(np.int64)
    return np.where(code & 0x8000, -code & 0xFFFF, code)


def split(code):
    """The power of two and the significand, in which bit 15 is set."""
    first = code & 0x4000
    length = 14 - highest_bit(np.where(first, ~code & 0x7FFF, code))
    rest = code << (length + 2) & 0xFFFF
    return 2 * np.where(first, length - 1, -length) + (rest >> 15), 0x8000 | rest & 0x7FFF


def join(sign, scale, significand):
    """The nearest posit; bit 31 of the significand is set."""
    scale = np.clip(scale, -30, 29).astype(np.int64)
    odd = scale & 1
    regime = (scale - odd) // 2
    up = np.maximum(regime, 0)
    run = np.where(regime < 0, 1, (2 << (up + 1)) - 2)
    dropped = np.where(regime < 0, 1 - regime, regime + 2) + 17
    word = run << 32 | odd << 31 | significand & 0x7FFFFFFF
    code = (word + (1 << (dropped - 1)) - 1 + (word >> dropped & 1)) >> dropped
    code = np.clip(code, 1, 0x7FFF)
    return np.where(sign, -code & 0xFFFF, code)


def add(a, b):
    swapped = magnitude(a) < magnitude(b)
    large, small = np.where(swapped, b, a), np.where(swapped, a, b)
    scale, significand = split(magnitude(large))
    other_scale, other = split(magnitude(small))
    shift = np.minimum(scale - other_scale, 47)
    most, wide = significand << 31, other << 31
    # The lowest bit says that bits were lost below it.
    less = wide >> shift | ((wide >> shift << shift) != wide)
    total = np.where((large ^ small) & 0x8000, most - less, most + less)
    top = highest_bit(total)
    down, left = np.maximum(top - 31, 0), np.maximum(31 - top, 0)
    upper = total >> down
    kept = (upper | (upper << down != total)) << left
    made = np.where(total == 0, 0, join(large & 0x8000, scale + top - 46, kept))
    made = np.where(small == 0, large, made)
    return np.where((a == 0x8000) | (b == 0x8000), 0x8000, made).astype(np.uint16)


def negative(x):
    return -x.astype(np.int64) & 0xFFFF


def multiply(a, b):
    (scale, left), (other, right) = split(magnitude(a)), split(magnitude(b))
    product = left * right
    top = highest_bit(product)
    made = join((a ^ b) & 0x8000, scale + other + top - 30, product << (31 - top))
    made = np.where((a == 0) | (b == 0), 0, made)
    return np.where((a == 0x8000) | (b == 0x8000), 0x8000, made).astype(np.uint16)


def divide(a, b):
    (scale, left), (other, right) = split(magnitude(a)), split(magnitude(b))
    below = (left < right).astype(np.int64)
    quotient, rest = np.divmod(left << (31 + below), right)
    made = join((a ^ b) & 0x8000, scale - other - below, quotient | (rest != 0))
    made = np.where(a == 0, 0, made)
    return np.where((a == 0x8000) | (b == 0x8000) | (b == 0), 0x8000, made).astype(np.uint16)


def encode(x):
    bits = x.view(np.uint32).astype(np.int64)
    size = bits & 0x7FFFFFFF
    made = join(bits >> 31, (size >> 23) - 127, size << 8 & 0xFFFFFFFF | 0x80000000)
    made = np.where(size == 0, 0, made)
    return np.where(size >= 0x7F800000, 0x8000, made).astype(np.uint16)


def decode(x):
    scale, significand = split(magnitude(x))
    bits = (x.astype(np.int64) & 0x8000) << 16 | scale + 127 << 23 | (significand & 0x7FFF) << 8
    bits = np.where(x == 0, 0, np.where(x == 0x8000, 0x7FC00000, bits))
    return bits.astype(np.uint32).view(np.float32)


def signed(x):
    """Posits are ordered as integers with a sign are."""
    return x.astype(np.int16)


F = number_formats.Function
number_formats.register(
    "posit16",
    16,
    F(ENCODE, encode),
    F(DECODE, decode),
    {
        "add": F(ADD, add),
        "subtract": F(
            "const uint16_t negative = (uint16_t)(0u - b);\nreturn utvm_posit16_add(a, negative);",
            lambda a, b: add(a, negative(b).astype(np.uint16)),
        ),
        "multiply": F(MULTIPLY, multiply),
        "divide": F(DIVIDE, divide),
        "maximum": F(
            "return (int16_t)a < (int16_t)b ? b : a;",
            lambda a, b: np.where(signed(a) < signed(b), b, a),
        ),
        "minimum": F(
            "return (int16_t)b < (int16_t)a ? b : a;",
            lambda a, b: np.where(signed(b) < signed(a), b, a),
        ),
        "less": F("return (int16_t)a < (int16_t)b;", lambda a, b: signed(a) < signed(b)),
    },
    helpers=HELPERS,
)
