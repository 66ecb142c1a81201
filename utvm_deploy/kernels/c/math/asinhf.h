// log(x + sqrt(x^2 + one)), where one is 1 or -1, for a magnitude of at least 1/2.
static inline float utvm_log_of_sum(uint32_t magnitude, int32_t one) {
    uint32_t mantissa;
    int32_t exponent = utvm_split_float(magnitude, &mantissa);
    if (exponent > 29) {
        return utvm_log_of_parts(mantissa, exponent + 1, 2977044472u, 32);
    }
    const uint64_t x = mantissa >> 1;
    const uint64_t unit = (uint64_t)1 << (60 - 2 * exponent);
    const uint64_t sum = x + utvm_root_of(one < 0 ? x * x - unit : x * x + unit);
    const int32_t zeros = utvm_zeros_above_wide(sum);
    mantissa = (uint32_t)(sum << zeros >> 32);
    return utvm_log_of_parts(mantissa, exponent + 33 - zeros, 2977044472u, 32);
}

static inline float utvm_asinhf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : x;
    }
    if (magnitude < 0x3f000000u) { // 1/2: x * p(x^2)
        const uint32_t u = utvm_square_of_fraction(magnitude);
        uint32_t p = 85576395u - utvm_upper(39083581u, u);
        p = 128830591u - utvm_upper(p, u);
        p = 191601361u - utvm_upper(p, u);
        p = 322116988u - utvm_upper(p, u);
        p = 715827798u - utvm_upper(p, u);
        return utvm_scaled_float(bits, 0x80000000u - (utvm_upper(p, u) >> 1));
    }
    return utvm_float_of(utvm_bits_of(utvm_log_of_sum(magnitude, 1)) | (bits & 0x80000000u));
}

static inline float utvm_acoshf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return utvm_quiet(bits);
    }
    if (bits >= 0x7f800000u || bits < 0x3f800000u) { // 1
        return bits == 0x7f800000u ? x : utvm_not_a_number();
    }
    if (bits >= 0x3fc00000u) { // 1.5
        return utvm_log_of_sum(bits, -1);
    }
    // sqrt(2t) * p(t), where t is x - 1 in Q32.
    const uint32_t t = (bits - 0x3f800000u) << 9;
    if (t == 0u) {
        return 0.0f;
    }
    const int32_t pairs = (utvm_zeros_above(t) - 1) / 2;
    const uint32_t root = utvm_root_of((uint64_t)t << (33 + 2 * pairs)); // Q(32 + pairs)
    uint32_t p = 2675950u - utvm_upper(611724u, t);
    p = 8052961u - utvm_upper(p, t);
    p = 23950482u - utvm_upper(p, t);
    p = 80529292u - utvm_upper(p, t);
    p = 357913902u - utvm_upper(p, t);
    return utvm_join_wide(0u, -pairs, (uint64_t)root * (0x80000000u - (utvm_upper(p, t) >> 1)));
}
