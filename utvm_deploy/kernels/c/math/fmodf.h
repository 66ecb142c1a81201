// x - y * trunc(x / y), exact.
static inline float utvm_fmodf(float x, float y) {
    const uint32_t sign = utvm_bits_of(x) & 0x80000000u;
    const uint32_t size = utvm_bits_of(x) ^ sign;
    const uint32_t divisor = utvm_bits_of(y) & 0x7fffffffu;
    if (size > 0x7f800000u || divisor > 0x7f800000u) {
        return utvm_quiet(utvm_bits_of(size > 0x7f800000u ? x : y));
    }
    if (size == 0x7f800000u || divisor == 0u) {
        return utvm_not_a_number();
    }
    if (size < divisor) {
        return x;
    }
    uint32_t rest;
    uint32_t by;
    int32_t steps = utvm_split_float(size, &rest);
    const int32_t exponent = utvm_split_float(divisor, &by);
    steps -= exponent;
    rest >>= 8;
    by >>= 8;
    // Eight binary digits of the quotient with each division.
    rest %= by;
    for (; steps > 0 && rest != 0u; steps -= 8) {
        rest = (rest << (steps < 8 ? steps : 8)) % by;
    }
    if (rest == 0u) {
        return utvm_float_of(sign);
    }
    return utvm_join_wide(sign, exponent + 8 + 32, rest);
}
