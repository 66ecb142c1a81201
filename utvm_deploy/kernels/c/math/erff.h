// erf(x) / x in Q31, for x^2 below 1 in Q32.
static inline uint32_t utvm_erf_factor(uint32_t u) {
    uint32_t p = 242033u - utvm_upper(20788u, u);
    p = 1822078u - utvm_upper(p, u);
    p = 11212173u - utvm_upper(p, u);
    p = 57693106u - utvm_upper(p, u);
    p = 242317389u - utvm_upper(p, u);
    p = 807725261u - utvm_upper(p, u);
    return 2423175810u - utvm_upper(p, u);
}

static inline float utvm_erff(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits & 0x80000000u;
    if (magnitude < 0x3f800000u) { // 1
        return utvm_scaled_float(bits, utvm_erf_factor(utvm_square_of_fraction(magnitude)));
    }
    if (magnitude >= 0x407c0000u) { // 3.9375
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_float_of(sign | 0x3f800000u);
    }
    // 1 - 2^-p(t), where t is x - 2.5 in Q30.
    const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    const uint32_t fixed = ((magnitude & 0x7fffffu) | 0x800000u) << (exponent + 6); // Q29
    const int32_t t = (int32_t)(fixed - 1342177280u) * 2;
    int64_t p = -95760 + (((int64_t)t * 33600) >> 30); // in Q30
    p = 667520 + ((t * p) >> 30);
    p = -3356128 + ((t * p) >> 30);
    p = 16812960 + ((t * p) >> 30);
    p = 1462165856 + ((t * p) >> 30);
    p = 1036467652 + ((t * p) >> 33); // in Q27
    const int64_t power = -(48373588416 + ((t * p) >> 25));
    const int32_t shift = -1 - (int32_t)(power >> 32);
    return utvm_join_float(sign, -1, 0u - (utvm_power_of_two((uint32_t)power) >> shift));
}
