// asin(x) / x in Q31, for x^2 of at most 1/4 in Q32.
static inline uint32_t utvm_arc_sine_factor(uint32_t u) {
    uint32_t p = 15423056u + utvm_upper(75160580u, u);
    p = 53098629u + utvm_upper(p, u);
    p = 64617232u + utvm_upper(p, u);
    p = 95911456u + utvm_upper(p, u);
    p = 161059927u + utvm_upper(p, u);
    p = 357913958u + utvm_upper(p, u);
    return 0x80000000u + utvm_upper(p, u);
}

// acos(x), for a magnitude between 1/2 and 1: value * 2^(exponent - 63). It is
// 2 * asin(sqrt((1 - x) / 2)).
static inline uint64_t utvm_arc_cosine(uint32_t magnitude, int32_t *exponent) {
    const uint32_t mantissa = magnitude << 8 | 0x80000000u;
    const uint32_t rest = magnitude < 0x3f800000u ? 0u - mantissa : 0u; // 1 - x in Q32
    if (rest == 0u) {
        return 0u;
    }
    const int32_t pairs = utvm_zeros_above(rest) / 2;
    // The root is in Q(32 + pairs).
    const uint32_t root = utvm_root_of((uint64_t)rest << (31 + 2 * pairs));
    *exponent = 1 - pairs;
    return (uint64_t)root * utvm_arc_sine_factor(rest >> 1);
}

static inline float utvm_asinf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x3f000000u) { // 1/2
        const uint32_t u = utvm_square_of_fraction(magnitude);
        return utvm_scaled_float(bits, utvm_arc_sine_factor(u));
    }
    if (magnitude > 0x3f800000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_not_a_number();
    }
    int32_t exponent = 1;
    const uint64_t arc = utvm_arc_cosine(magnitude, &exponent);
    const uint64_t quarter = 7244019458077122842; // pi/2 in Q62
    return utvm_join_wide(bits & 0x80000000u, 1, quarter - (arc >> (1 - exponent)));
}

static inline float utvm_acosf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint64_t quarter = 3622009729038561421; // pi/2 in Q61
    if (magnitude < 0x3f000000u) {                // 1/2
        const int32_t shift = 126 - (int32_t)(magnitude >> 23);
        const uint32_t size = shift > 31 ? 0u : (magnitude << 8 | 0x80000000u) >> shift; // Q32
        const uint64_t arc = (uint64_t)size * utvm_arc_sine_factor(utvm_upper(size, size)) >> 2;
        return utvm_join_wide(0u, 2, bits >> 31 ? quarter + arc : quarter - arc);
    }
    if (magnitude > 0x3f800000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : utvm_not_a_number();
    }
    int32_t exponent = 1;
    const uint64_t arc = utvm_arc_cosine(magnitude, &exponent);
    if (bits >> 31) {
        return utvm_join_wide(0u, 2, 2u * quarter - (arc >> (2 - exponent)));
    }
    return arc == 0u ? 0.0f : utvm_join_wide(0u, exponent, arc);
}
