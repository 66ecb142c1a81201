static inline float utvm_erfcf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    if (magnitude < 0x3f000000u) { // 1/2: 1 - erf(x), in Q31
        const uint32_t size =
            exponent < -32 ? 0u : (magnitude << 8 | 0x80000000u) >> (-1 - exponent);
        const uint32_t erf = utvm_upper(size, utvm_erf_factor(utvm_upper(size, size)));
        const uint32_t value = bits >> 31 ? 0x80000000u + erf : 0x80000000u - erf;
        return utvm_join_wide(0u, 0, (uint64_t)value << 32);
    }
    if (magnitude >= 0x41240000u) { // 10.25
        if (magnitude > 0x7f800000u) {
            return utvm_quiet(bits);
        }
        return bits >> 31 ? 2.0f : 0.0f;
    }
    // exp(-x^2) * p(t) / (x + 2), where t is (x - 2) / (x + 2), and p in Q30.
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t sum = (mantissa << (exponent + 5)) + 0x20000000u; // Q28
    const int32_t zeros = utvm_zeros_above(sum);
    const uint32_t reciprocal = utvm_reciprocal_of(sum << zeros);
    const int64_t t = 1073741824 - (((int64_t)reciprocal << zeros) >> 2); // Q30
    int64_t p = 63675 + ((t * 131652) >> 30);
    p = -703308 + ((t * p) >> 30);
    p = -907628 + ((t * p) >> 30);
    p = 3317079 + ((t * p) >> 30);
    p = 6958245 + ((t * p) >> 30);
    p = -23096793 + ((t * p) >> 30);
    p = -39129627 + ((t * p) >> 30);
    p = 300080872 + ((t * p) >> 30);
    p = -737833165 + ((t * p) >> 30);
    p = 1096916077 + ((t * p) >> 30);
    uint64_t ratio = (uint64_t)p * reciprocal;
    const int32_t above = utvm_zeros_above_wide(ratio);
    ratio = ratio << above >> 32;
    // x^2 * log2(e); the factor in Q31 is 3098164009 + 92 / 256.
    const uint64_t square = (uint64_t)mantissa * mantissa;
    const uint64_t upper = square >> 16;
    const uint64_t product =
        upper * 3098164009u + ((square & 0xffffu) * 3098164009u >> 16) + (upper * 92u >> 8);
    const int64_t power = -(int64_t)(product >> (29 - 2 * exponent));
    const uint64_t result = utvm_power_of_two((uint32_t)power) * ratio;
    const float tail = utvm_join_wide(0u, (int32_t)(power >> 32) + zeros - above, result);
    return bits >> 31 ? 2.0f - tail : tail;
}
