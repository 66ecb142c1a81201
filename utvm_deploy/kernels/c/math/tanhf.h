static inline float utvm_tanhf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits & 0x80000000u;
    if (magnitude < 0x3f100000u) { // 0.5625: x * p(x^2)
        const uint32_t u = utvm_square_of_fraction(magnitude);
        uint32_t p = 35942940u - utvm_upper(10067881u, u);
        p = 93492194u - utvm_upper(p, u);
        p = 231745014u - utvm_upper(p, u);
        p = 572659890u - utvm_upper(p, u);
        p = 1431655718u - utvm_upper(p, u);
        return utvm_scaled_float(bits, 0x80000000u - (utvm_upper(p, u) >> 1));
    }
    if (magnitude >= 0x41180000u) { // 9.5
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_float_of(sign | 0x3f800000u);
    }
    // 1 - 2z / (1 + z), where z is exp(-2x), in Q32.
    const int64_t power = -2 * utvm_exponent_of_exp(magnitude);
    const int32_t shift = -1 - (int32_t)(power >> 32);
    const uint32_t z = utvm_power_of_two((uint32_t)power) >> shift;
    const uint32_t reciprocal = utvm_reciprocal_of(0x80000000u + (z >> 1));
    const uint32_t rest = (uint32_t)(((uint64_t)z * reciprocal) >> 30);
    return utvm_join_float(sign, -1, 0u - rest);
}
