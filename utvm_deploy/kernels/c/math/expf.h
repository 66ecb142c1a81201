static inline float utvm_expf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x42d00000u) { // 104
        if (magnitude > 0x7f800000u) {
            return utvm_quiet(bits);
        }
        return utvm_float_of(bits >> 31 ? 0u : 0x7f800000u);
    }
    int64_t power = utvm_exponent_of_exp(magnitude);
    power = bits >> 31 ? -power : power;
    return utvm_join_float(0u, (int32_t)(power >> 32), utvm_power_of_two((uint32_t)power));
}
