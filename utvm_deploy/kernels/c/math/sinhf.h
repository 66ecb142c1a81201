// exp(x) and exp(-x) in Q31, for a magnitude below 21.
static inline uint64_t utvm_both_powers(uint32_t magnitude, uint32_t *inverse) {
    const int64_t power = utvm_exponent_of_exp(magnitude);
    const int32_t shift = (int32_t)(-power >> 32);
    *inverse = power == 0 ? 0x80000000u : utvm_power_of_two((uint32_t)-power) >> -shift;
    return (uint64_t)utvm_power_of_two((uint32_t)power) << (int32_t)(power >> 32);
}

// Half of exp(x), for a magnitude of at least 21.
static inline float utvm_half_exp(uint32_t sign, uint32_t magnitude) {
    if (magnitude >= 0x42d00000u) { // 104
        return magnitude > 0x7f800000u ? utvm_quiet(sign | magnitude)
                                       : utvm_float_of(sign | 0x7f800000u);
    }
    const int64_t power = utvm_exponent_of_exp(magnitude);
    const int32_t exponent = (int32_t)(power >> 32) - 1;
    return utvm_join_float(sign, exponent, utvm_power_of_two((uint32_t)power));
}

static inline float utvm_sinhf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits & 0x80000000u;
    if (magnitude < 0x3f800000u) { // 1: x * p(x^2)
        const uint32_t u = utvm_square_of_fraction(magnitude);
        uint32_t p = 425969u + utvm_upper(6054u, u);
        p = 17895740u + utvm_upper(p, u);
        p = 357913936u + utvm_upper(p, u);
        return utvm_scaled_float(bits, 0x80000000u + utvm_upper(p, u));
    }
    if (magnitude >= 0x41a80000u) { // 21
        return utvm_half_exp(sign, magnitude);
    }
    uint32_t inverse;
    const uint64_t power = utvm_both_powers(magnitude, &inverse);
    return utvm_join_wide(sign, 31, power - inverse);
}

static inline float utvm_coshf(float x) {
    const uint32_t magnitude = utvm_bits_of(x) & 0x7fffffffu;
    if (magnitude < 0x39000000u) { // 2^-13
        return 1.0f;
    }
    if (magnitude >= 0x41a80000u) { // 21
        return utvm_half_exp(0u, magnitude);
    }
    uint32_t inverse;
    const uint64_t power = utvm_both_powers(magnitude, &inverse);
    return utvm_join_wide(0u, 31, power + inverse);
}
