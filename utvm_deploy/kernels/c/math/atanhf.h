static inline float utvm_atanhf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits & 0x80000000u;
    if (magnitude < 0x3e800000u) { // 1/4: x * p(x^2)
        const uint32_t u = utvm_square_of_fraction(magnitude);
        uint32_t p = 236095491u + utvm_upper(229715596u, u);
        p = 306866409u + utvm_upper(p, u);
        p = 429495498u + utvm_upper(p, u);
        p = 715827889u + utvm_upper(p, u);
        return utvm_scaled_float(bits, 0x80000000u + utvm_upper(p, u));
    }
    if (magnitude >= 0x3f800000u) { // 1
        if (magnitude > 0x7f800000u) {
            return utvm_quiet(bits);
        }
        return magnitude > 0x3f800000u ? utvm_not_a_number() : utvm_float_of(sign | 0x7f800000u);
    }
    // Half of log(1 + x) - log(1 - x).
    const uint32_t fixed = (magnitude << 8 | 0x80000000u) >> (126 - (magnitude >> 23)); // Q32
    const uint32_t rest = 0u - fixed;
    const int32_t zeros = utvm_zeros_above(rest);
    int32_t place;
    int64_t power = utvm_binary_logarithm(0x80000000u + (fixed >> 1), 0, &place);
    power -= utvm_binary_logarithm(rest << zeros, -1 - zeros, &place);
    const float result = utvm_join_logarithm(power, place + 1, 2977044472u, 32);
    return utvm_float_of(utvm_bits_of(result) | sign);
}
