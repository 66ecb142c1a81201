// Whether a magnitude is a whole number (1), and an odd one (2).
static inline uint32_t utvm_whole_or_odd(uint32_t magnitude) {
    const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    if (exponent < 0) {
        return 0u;
    }
    if (exponent > 23) {
        return 1u;
    }
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    if ((mantissa & ((1u << (23 - exponent)) - 1u)) != 0u) {
        return 0u;
    }
    return 1u + (mantissa >> (23 - exponent) & 1u);
}

// x^y, with the special values of C99.
static inline float utvm_powf(float x, float y) {
    const uint32_t x_bits = utvm_bits_of(x);
    const uint32_t y_bits = utvm_bits_of(y);
    const uint32_t base = x_bits & 0x7fffffffu;
    const uint32_t power = y_bits & 0x7fffffffu;
    if (power == 0u || x_bits == 0x3f800000u) {
        return 1.0f;
    }
    if (base > 0x7f800000u || power > 0x7f800000u) {
        return utvm_quiet(base > 0x7f800000u ? x_bits : y_bits);
    }
    const uint32_t falls = y_bits >> 31;
    if (power == 0x7f800000u) {
        if (base == 0x3f800000u) {
            return 1.0f;
        }
        return utvm_float_of((base > 0x3f800000u) == (falls == 0u) ? 0x7f800000u : 0u);
    }
    const uint32_t kind = x_bits >> 31 ? utvm_whole_or_odd(power) : 0u;
    const uint32_t sign = kind == 2u ? 0x80000000u : 0u;
    if (base == 0u || base == 0x7f800000u) {
        return utvm_float_of(sign | ((base == 0u) == (falls != 0u) ? 0x7f800000u : 0u));
    }
    if (x_bits >> 31 && kind == 0u) {
        return utvm_not_a_number();
    }
    uint32_t base_mantissa;
    uint32_t mantissa;
    int32_t place;
    const int32_t base_exponent = utvm_split_float(base, &base_mantissa);
    const int32_t exponent = utvm_split_float(power, &mantissa);
    const int64_t logarithm = utvm_binary_logarithm(base_mantissa, base_exponent, &place);
    if (logarithm == 0) { // of -1
        return utvm_float_of(sign | 0x3f800000u);
    }
    uint64_t size = logarithm < 0 ? 0u - (uint64_t)logarithm : (uint64_t)logarithm;
    const int32_t zeros = utvm_zeros_above_wide(size);
    size <<= zeros;
    const uint64_t product = (size >> 32) * mantissa + (((size & 0xffffffffu) * mantissa) >> 32);
    // The product of logarithm and power in Q32 is this product >> shift.
    const int32_t shift = zeros + place - 33 - exponent;
    const uint32_t shrinks = (logarithm < 0) == (falls == 0u);
    if (shift < 23) {
        return utvm_float_of(sign | (shrinks ? 0u : 0x7f800000u));
    }
    int64_t result = shift > 63 ? 0 : (int64_t)(product >> shift);
    result = shrinks ? -result : result;
    return utvm_join_float(sign, (int32_t)(result >> 32), utvm_power_of_two((uint32_t)result));
}
