// 2^fraction as a normalized mantissa in Q31; the fraction is in Q32.
// (2^t - 1) / t is a polynomial of degree 5, with an error of at most 2^-28.
static inline uint32_t utvm_power_of_two(uint32_t t) {
    uint32_t p = 5354899u + utvm_upper(928268u, t);
    p = 41555749u + utvm_upper(p, t);
    p = 238307465u + utvm_upper(p, t);
    p = 1031777011u + utvm_upper(p, t);
    p = 2977043876u + utvm_upper(p, t);
    return 0x80000000u + (utvm_upper(p, t) >> 1);
}

// magnitude * (factor + more / 256) in Q32, for a factor in Q31.
static inline int64_t utvm_scaled_exponent(uint32_t magnitude, uint32_t factor, uint32_t more) {
    const int32_t shift = 149 - (int32_t)(magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint64_t product = (uint64_t)mantissa * factor + (mantissa * more >> 8);
    return shift > 63 ? 0 : (int64_t)(product >> shift);
}

// magnitude * log2(e) in Q32.
static inline int64_t utvm_exponent_of_exp(uint32_t magnitude) {
    return utvm_scaled_exponent(magnitude, 3098164009u, 92u);
}
