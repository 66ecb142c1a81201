static inline float utvm_log1pf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return utvm_quiet(bits);
    }
    if (magnitude < 0x3b800000u) { // 2^-8: x * p(x), with x in Q31 and p in Q31
        const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
        const uint32_t size = exponent < -31 ? 0u : (magnitude << 8 | 0x80000000u) >> -exponent;
        const int64_t t = bits >> 31 ? -(int64_t)size : (int64_t)size;
        int64_t p = 715834436 - ((t * 536879104) >> 31);
        p = -1073741824 + ((t * p) >> 31);
        p = 2147483648 + ((t * p) >> 31);
        return utvm_scaled_float(bits, (uint32_t)p);
    }
    if (bits >= 0xbf800000u) { // -1
        return bits == 0xbf800000u ? utvm_float_of(0xff800000u) : utvm_not_a_number();
    }
    if (bits == 0x7f800000u) {
        return x;
    }
    uint32_t mantissa;
    int32_t exponent = utvm_split_float(magnitude, &mantissa);
    if (exponent < 31) {
        // 1 + x in Q31.
        const uint64_t size = (uint64_t)(mantissa >> 8) << (exponent + 8);
        const uint64_t one = (uint64_t)1 << 31;
        const uint64_t sum = bits >> 31 ? one - size : one + size;
        const int32_t zeros = utvm_zeros_above_wide(sum);
        mantissa = (uint32_t)(sum << zeros >> 32);
        exponent = 32 - zeros;
    }
    return utvm_log_of_parts(mantissa, exponent, 2977044472u, 32);
}
