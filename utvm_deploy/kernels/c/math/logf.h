// A logarithm power * 2^-place for base 2, for the base whose log2 is
// 2^scale / factor.
static inline float utvm_join_logarithm(int64_t power, int32_t place, uint32_t factor,
                                        int32_t scale) {
    if (power == 0) {
        return 0.0f;
    }
    const uint32_t sign = power < 0 ? 0x80000000u : 0u;
    const uint64_t size = power < 0 ? 0u - (uint64_t)power : (uint64_t)power;
    const int32_t zeros = utvm_zeros_above_wide(size);
    const uint64_t product = (size << zeros >> 32) * factor;
    return utvm_join_wide(sign, 95 - scale - zeros - place, product);
}

// The same of mantissa * 2^(exponent - 31).
static inline float utvm_log_of_parts(uint32_t mantissa, int32_t exponent, uint32_t factor,
                                      int32_t scale) {
    int32_t place;
    const int64_t power = utvm_binary_logarithm(mantissa, exponent, &place);
    return utvm_join_logarithm(power, place, factor, scale);
}

// The logarithm for the base whose log2 is 2^scale / factor.
static inline float utvm_log_of_base(float x, uint32_t factor, int32_t scale) {
    const uint32_t bits = utvm_bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return utvm_quiet(bits);
    }
    if ((bits & 0x7fffffffu) == 0u) {
        return utvm_float_of(0xff800000u);
    }
    if (bits >= 0x7f800000u) {
        return bits == 0x7f800000u ? x : utvm_not_a_number();
    }
    uint32_t mantissa;
    const int32_t exponent = utvm_split_float(bits, &mantissa);
    return utvm_log_of_parts(mantissa, exponent, factor, scale);
}

static inline float utvm_logf(float x) {
    return utvm_log_of_base(x, 2977044472u, 32);
}

static inline float utvm_log2f(float x) {
    return utvm_log_of_base(x, 0x80000000u, 31);
}

static inline float utvm_log10f(float x) {
    return utvm_log_of_base(x, 2585827973u, 33);
}
