static inline float utvm_sinf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x39000000u) { // 2^-13
        return x;
    }
    if (magnitude >= 0x7f800000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_not_a_number();
    }
    utvm_turn_t rest;
    uint32_t mantissa;
    const uint32_t quarter = utvm_quarter_turns(magnitude, &rest);
    const uint32_t sign = (bits & 0x80000000u) ^ (quarter & 2u) << 30;
    if (quarter & 1u) {
        const int32_t exponent = utvm_cosine_of_rest(&rest, &mantissa);
        return utvm_join_float(sign, exponent, mantissa);
    }
    const int32_t exponent = utvm_sine_of_rest(&rest, &mantissa);
    return utvm_join_float(sign ^ rest.sign, exponent, mantissa);
}

static inline float utvm_cosf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x39000000u) { // 2^-13
        return 1.0f;
    }
    if (magnitude >= 0x7f800000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_not_a_number();
    }
    utvm_turn_t rest;
    uint32_t mantissa;
    const uint32_t quarter = utvm_quarter_turns(magnitude, &rest);
    const uint32_t sign = ((quarter + 1u) & 2u) << 30;
    if (quarter & 1u) {
        const int32_t exponent = utvm_sine_of_rest(&rest, &mantissa);
        return utvm_join_float(sign ^ rest.sign, exponent, mantissa);
    }
    const int32_t exponent = utvm_cosine_of_rest(&rest, &mantissa);
    return utvm_join_float(sign, exponent, mantissa);
}
