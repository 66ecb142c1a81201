static inline float utvm_tanf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x39000000u) { // 2^-13
        return x;
    }
    if (magnitude >= 0x7f800000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_not_a_number();
    }
    utvm_turn_t rest;
    uint32_t sine;
    uint32_t cosine;
    const uint32_t quarter = utvm_quarter_turns(magnitude, &rest);
    const int32_t of_sine = utvm_sine_of_rest(&rest, &sine);
    const int32_t of_cosine = utvm_cosine_of_rest(&rest, &cosine);
    const uint32_t sign = (bits & 0x80000000u) ^ rest.sign;
    if (quarter & 1u) { // -cosine / sine
        const uint64_t ratio = (uint64_t)cosine * utvm_reciprocal_of(sine);
        return utvm_join_wide(sign ^ 0x80000000u, of_cosine - of_sine + 1, ratio);
    }
    const uint64_t ratio = (uint64_t)sine * utvm_reciprocal_of(cosine);
    return utvm_join_wide(sign, of_sine - of_cosine + 1, ratio);
}
