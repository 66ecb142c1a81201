static inline float utvm_hypotf(float x, float y) {
    const uint32_t a = utvm_bits_of(x) & 0x7fffffffu;
    const uint32_t b = utvm_bits_of(y) & 0x7fffffffu;
    const uint32_t more = a > b ? a : b;
    const uint32_t less = a > b ? b : a;
    if (more >= 0x7f800000u) {
        const uint32_t infinite = less == 0x7f800000u || more == 0x7f800000u;
        return infinite ? utvm_float_of(0x7f800000u) : utvm_quiet(more);
    }
    if (less == 0u) {
        return utvm_float_of(more);
    }
    uint32_t long_leg;
    uint32_t short_leg;
    const int32_t exponent = utvm_split_float(more, &long_leg);
    const int32_t shift = exponent - utvm_split_float(less, &short_leg) + 1;
    long_leg >>= 1;
    short_leg = shift > 31 ? 0u : short_leg >> shift;
    const uint64_t square = (uint64_t)long_leg * long_leg + (uint64_t)short_leg * short_leg;
    return utvm_join_wide(0u, exponent + 33, utvm_root_of(square));
}
