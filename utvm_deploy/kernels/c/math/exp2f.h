// 2^(x * (factor + more / 256)), where the factor is in Q31. Above the limit, the result is
// infinite, or 0.
static inline float utvm_exp_of_base(float x, uint32_t factor, uint32_t more, uint32_t limit) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= limit) {
        if (magnitude > 0x7f800000u) {
            return utvm_quiet(bits);
        }
        return utvm_float_of(bits >> 31 ? 0u : 0x7f800000u);
    }
    int64_t power = utvm_scaled_exponent(magnitude, factor, more);
    power = bits >> 31 ? -power : power;
    return utvm_join_float(0u, (int32_t)(power >> 32), utvm_power_of_two((uint32_t)power));
}

static inline float utvm_exp2f(float x) {
    return utvm_exp_of_base(x, 0x80000000u, 0u, 0x43180000u); // 152
}

static inline float utvm_exp10f(float x) {
    // log2(10) is 3.32, so the factor is a quarter of it.
    return utvm_exp_of_base(4.0f * x, 1783446565u, 231u, 0x43380000u); // 46 * 4
}
