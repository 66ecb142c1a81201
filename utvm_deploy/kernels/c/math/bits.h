// Bits of float32, and the products that the mathematical functions are made
// of. They compute with integers, so all compilers and cores get equal bytes.
// "Q32" means a number times 2^32. A normalized mantissa has bit 31 set; with
// an exponent e, it means mantissa * 2^(e - 31).

typedef union {
    float value;
    uint32_t bits;
} utvm_float_t;

static inline uint32_t utvm_bits_of(float x) {
    utvm_float_t both;
    both.value = x;
    return both.bits;
}

static inline float utvm_float_of(uint32_t bits) {
    utvm_float_t both;
    both.bits = bits;
    return both.value;
}

// The result for an argument that is a NaN: the same one, quiet.
static inline float utvm_quiet(uint32_t bits) {
    return utvm_float_of(bits | 0x400000u);
}

static inline float utvm_not_a_number(void) {
    return utvm_float_of(0x7fc00000u);
}

// The upper half of a product.
static inline uint32_t utvm_upper(uint32_t a, uint32_t b) {
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

static inline int32_t utvm_upper_signed(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b) >> 32);
}

static inline int32_t utvm_zeros_above(uint32_t value) {
#if defined(__GNUC__)
    return __builtin_clz(value);
#else
    int32_t zeros = 0;
    for (; value < 0x80000000u; value <<= 1) {
        zeros += 1;
    }
    return zeros;
#endif
}

static inline int32_t utvm_zeros_above_wide(uint64_t value) {
    const uint32_t upper = (uint32_t)(value >> 32);
    return upper != 0u ? utvm_zeros_above(upper) : 32 + utvm_zeros_above((uint32_t)value);
}

// The exponent and the normalized mantissa of a finite magnitude above 0.
static inline int32_t utvm_split_float(uint32_t magnitude, uint32_t *mantissa) {
    if (magnitude < 0x800000u) {
        const int32_t zeros = utvm_zeros_above(magnitude);
        *mantissa = magnitude << zeros;
        return -118 - zeros;
    }
    *mantissa = magnitude << 8 | 0x80000000u;
    return (int32_t)(magnitude >> 23) - 127;
}

// The float nearest to mantissa * 2^(exponent - 31), with this sign bit.
static inline float utvm_join_float(uint32_t sign, int32_t exponent, uint32_t mantissa) {
    if (exponent > 127) {
        return utvm_float_of(sign | 0x7f800000u);
    }
    if (exponent < -126) {
        const int32_t shift = -119 - exponent;
        return utvm_float_of(sign | (shift > 31 ? 0u : ((mantissa >> shift) + 1u) >> 1));
    }
    // The mantissa's leading bit adds the 1 that is missing here.
    const uint32_t biased = (uint32_t)(exponent + 126) << 23;
    return utvm_float_of(sign | (biased + (mantissa >> 8) + (mantissa >> 7 & 1u)));
}

// The same for any number of bits above 0: value * 2^(exponent - 63).
static inline float utvm_join_wide(uint32_t sign, int32_t exponent, uint64_t value) {
    const int32_t zeros = utvm_zeros_above_wide(value);
    return utvm_join_float(sign, exponent - zeros, (uint32_t)(value << zeros >> 32));
}

// x times a factor in Q31 between 1/2 and 2, where x is no NaN.
static inline float utvm_scaled_float(uint32_t bits, uint32_t factor) {
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t mantissa;
    if (magnitude == 0u) {
        return utvm_float_of(bits);
    }
    const int32_t exponent = utvm_split_float(magnitude, &mantissa);
    return utvm_join_wide(bits & 0x80000000u, exponent + 1, (uint64_t)mantissa * factor);
}

// The square of a magnitude below 1, in Q32.
static inline uint32_t utvm_square_of_fraction(uint32_t magnitude) {
    const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    if (exponent < -17) {
        return 0u;
    }
    const uint32_t fraction = (magnitude << 8 | 0x80000000u) >> (-1 - exponent);
    return utvm_upper(fraction, fraction);
}
