// atan(mantissa * 2^(exponent - 31)) for at most 1: value * 2^(exponent - 62).
static inline uint64_t utvm_arc_tangent(uint32_t mantissa, int32_t exponent) {
    const int32_t shift = -1 - exponent;
    const uint32_t t = shift < 0 ? 0xffffffffu : shift > 31 ? 0u : mantissa >> shift; // Q32
    const uint32_t u = utvm_upper(t, t);
    uint32_t p = 21147140u - utvm_upper(2998047u, u);
    p = 69940529u - utvm_upper(p, u);
    p = 147922826u - utvm_upper(p, u);
    p = 233953787u - utvm_upper(p, u);
    p = 311643035u - utvm_upper(p, u);
    p = 385849895u - utvm_upper(p, u);
    p = 476483485u - utvm_upper(p, u);
    p = 613496341u - utvm_upper(p, u);
    p = 858989940u - utvm_upper(p, u);
    p = 1431655696u - utvm_upper(p, u);
    return (uint64_t)mantissa * (0x80000000u - (utvm_upper(p, u) >> 1));
}

// The angle of a point in the first quadrant; "left" mirrors it to the second.
static inline float utvm_angle(uint32_t sign, uint32_t x, uint32_t y, uint32_t left) {
    const uint64_t quarter = 3622009729038561421; // pi/2 in Q61
    const uint32_t steep = y > x;
    const uint32_t over = steep ? x : y;
    const uint32_t under = steep ? y : x;
    uint64_t angle = 0u; // in Q61
    if (over != 0u) {
        uint32_t numerator;
        uint32_t denominator;
        int32_t exponent = utvm_split_float(over, &numerator);
        exponent -= utvm_split_float(under, &denominator);
        if (denominator != 0x80000000u) {
            const uint64_t ratio = (uint64_t)numerator * utvm_reciprocal_of(denominator);
            const int32_t zeros = utvm_zeros_above_wide(ratio);
            numerator = (uint32_t)(ratio << zeros >> 32);
            exponent += 1 - zeros;
        }
        const uint64_t arc = utvm_arc_tangent(numerator, exponent);
        if (!steep && left == 0u) {
            return utvm_join_wide(sign, exponent + 1, arc);
        }
        angle = exponent < -62 ? 0u : arc >> (1 - exponent);
    }
    if (steep) {
        angle = left != 0u ? quarter + angle : quarter - angle;
    } else if (left != 0u) {
        angle = 2u * quarter - angle;
    }
    return angle == 0u ? utvm_float_of(sign) : utvm_join_wide(sign, 2, angle);
}

static inline float utvm_atanf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return utvm_quiet(bits);
    }
    return utvm_angle(bits & 0x80000000u, 0x3f800000u, magnitude, 0u);
}

static inline float utvm_atan2f(float y, float x) {
    const uint32_t y_bits = utvm_bits_of(y);
    const uint32_t x_bits = utvm_bits_of(x);
    uint32_t height = y_bits & 0x7fffffffu;
    uint32_t width = x_bits & 0x7fffffffu;
    if (height > 0x7f800000u || width > 0x7f800000u) {
        return utvm_quiet(height > 0x7f800000u ? y_bits : x_bits);
    }
    // Everything finite is nothing next to an infinity.
    if (height != width) {
        height = width == 0x7f800000u ? 0u : height;
        width = height == 0x7f800000u ? 0u : width;
    }
    return utvm_angle(y_bits & 0x80000000u, width, height, x_bits >> 31);
}
