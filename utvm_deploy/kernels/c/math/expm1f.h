static inline float utvm_expm1f(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x3f000000u) { // 1/2: x * p(x), with x in Q32 and p in Q30
        const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
        const uint32_t size =
            exponent < -32 ? 0u : (magnitude << 8 | 0x80000000u) >> (-1 - exponent);
        const int32_t t = bits >> 31 ? -(int32_t)size : (int32_t)size;
        int32_t p = 214528 + utvm_upper_signed(26816, t);
        p = 1491269 + utvm_upper_signed(p, t);
        p = 8947616 + utvm_upper_signed(p, t);
        p = 44739246 + utvm_upper_signed(p, t);
        p = 178956982 + utvm_upper_signed(p, t);
        p = 536870912 + utvm_upper_signed(p, t);
        p = 1073741824 + utvm_upper_signed(p, t);
        return utvm_scaled_float(bits, (uint32_t)p << 1);
    }
    if (magnitude >= 0x42d00000u) { // 104
        if (magnitude > 0x7f800000u) {
            return utvm_quiet(bits);
        }
        return utvm_float_of(bits >> 31 ? 0xbf800000u : 0x7f800000u);
    }
    int64_t power = utvm_exponent_of_exp(magnitude);
    power = bits >> 31 ? -power : power;
    const int32_t exponent = (int32_t)(power >> 32);
    const uint32_t mantissa = utvm_power_of_two((uint32_t)power);
    if (exponent > 31) {
        return utvm_join_float(0u, exponent, mantissa);
    }
    if (bits >> 31) { // 1 - exp(x), in Q32
        const uint64_t rest = exponent < -31 ? 0u : mantissa >> (-1 - exponent);
        return utvm_join_wide(0x80000000u, 31, ((uint64_t)1 << 32) - rest);
    }
    return utvm_join_wide(0u, 32, ((uint64_t)mantissa << exponent) - 0x80000000u);
}
