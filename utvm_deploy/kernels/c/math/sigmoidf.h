// 1 / (1 + exp(-x)).
static inline float utvm_sigmoidf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x42d00000u) { // 104
        if (magnitude > 0x7f800000u) {
            return utvm_quiet(bits);
        }
        return bits >> 31 ? 0.0f : 1.0f;
    }
    // z is exp(-|x|): 1 / (1 + z), or z / (1 + z).
    const int64_t power = -utvm_exponent_of_exp(magnitude);
    if (power == 0) {
        return 0.5f;
    }
    const uint32_t z = utvm_power_of_two((uint32_t)power);
    const int32_t exponent = (int32_t)(power >> 32);
    const uint32_t reciprocal =
        utvm_reciprocal_of(0x80000000u + (exponent < -31 ? 0u : z >> -exponent));
    return utvm_join_wide(0u, bits >> 31 ? exponent + 1 : 32,
                          (uint64_t)reciprocal * (bits >> 31 ? z : 1u));
}
