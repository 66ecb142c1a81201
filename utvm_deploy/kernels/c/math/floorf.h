// Magnitudes of 2^23 and above are whole numbers. A zero keeps its sign.
static inline float utvm_truncf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x4b000000u) {
        return magnitude > 0x7f800000u ? utvm_quiet(bits) : x;
    }
    return utvm_float_of(utvm_bits_of((float)(int32_t)x) | (bits & 0x80000000u));
}

static inline float utvm_floorf(float x) {
    const float whole = utvm_truncf(x);
    return whole > x ? whole - 1.0f : whole;
}

static inline float utvm_ceilf(float x) {
    const float whole = utvm_truncf(x);
    if (whole < x) {
        return whole + 1.0f;
    }
    return whole;
}

// Halves go away from 0.
static inline float utvm_roundf(float x) {
    const uint32_t sign = utvm_bits_of(x) & 0x80000000u;
    const float size = utvm_float_of(utvm_bits_of(x) ^ sign);
    const float whole = utvm_truncf(size);
    const float result = size - whole >= 0.5f ? whole + 1.0f : whole;
    return utvm_float_of(utvm_bits_of(result) | sign);
}

// Halves go to the even neighbour.
static inline float utvm_nearbyintf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    const uint32_t sign = bits & 0x80000000u;
    if ((bits ^ sign) >= 0x4b000000u) {
        return (bits ^ sign) > 0x7f800000u ? utvm_quiet(bits) : x;
    }
    const float size = utvm_float_of(bits ^ sign);
    const float whole = utvm_truncf(size);
    const float rest = size - whole;
    const uint32_t odd = (uint32_t)(int32_t)whole & 1u;
    const float result = rest > 0.5f || (rest == 0.5f && odd) ? whole + 1.0f : whole;
    return utvm_float_of(utvm_bits_of(result) | sign);
}

static inline float utvm_rintf(float x) {
    return utvm_nearbyintf(x);
}
