// What the gates of a long short-term memory compute, bit for bit as LiteRT's
// reference kernel. Numbers of 16 bits are fractions of 2^15, but
// for inputs of functions, which have as many integer bits as they say.

static inline int32_t utvm_int16(int32_t value) {
    value = value < -32768 ? -32768 : value;
    return value > 32767 ? 32767 : value;
}

// left * right / 2^15, half up, saturated.
static inline int32_t utvm_product16(int32_t left, int32_t right) {
    return utvm_int16((left * right + (1 << 14)) >> 15);
}

// value / 2^bits, half away from zero, for values far below 2^31 and 1 <= bits.
static inline int32_t utvm_rounded16(int32_t value, int32_t bits) {
    return (value + (value >> 31) + (1 << (bits - 1))) >> bits;
}

// exp(value) for value <= 0: a polynomial around -1/8 for what is left of
// quarters, times a factor for every bit of how many quarters there are.
static inline int32_t utvm_exp16(int32_t value, int32_t integer_bits) {
    static const int16_t factors[7] = {25520, 19875, 12055, 4435, 600, 11, 0};
    const int32_t center = 28918; // exp(-1/8)
    const int32_t third = 10923;
    int32_t fraction_bits = 15 - integer_bits;
    if (value == 0) {
        return 32767;
    }
    if (integer_bits > 5 && value < -(1 << (20 - integer_bits))) {
        return 0;
    }
    int32_t quarter = 1 << (fraction_bits - 2);
    int32_t rest = (value & (quarter - 1)) - quarter;
    int32_t x = utvm_int16(rest * (1 << integer_bits)) + (1 << 12);
    int32_t x2 = utvm_product16(x, x);
    int32_t x3 = utvm_product16(x2, x);
    int32_t x4 = utvm_product16(x2, x2);
    int32_t higher = utvm_product16(utvm_rounded16(x4, 2) + x3, third) + x2;
    int32_t result = utvm_int16(center + utvm_product16(center, x + utvm_rounded16(higher, 1)));
    for (int32_t i = 0; i < 7 && i < integer_bits + 2; i++) {
        int32_t lower = utvm_product16(result, factors[i]);
        result = ((rest - value) >> (fraction_bits - 2 + i)) & 1 ? lower : result;
    }
    return result;
}

// 2 / (1 + value) for a value in [0, 1], with two integer bits: three
// Newton-Raphson steps on 48/17 - 32/17 d.
static inline int32_t utvm_twice_inverse16(int32_t value) {
    int32_t half = (value + 32768) / 2;
    int32_t x = 23130 + utvm_product16(half, -15420);
    for (int32_t step = 0; step < 3; step++) {
        int32_t error = (1 << 13) - utvm_product16(half, x);
        x += utvm_int16(utvm_product16(x, error) * 4);
    }
    return x;
}

static inline int32_t utvm_logistic16(int32_t value) {
    if (value == 0) {
        return 1 << 14;
    }
    int32_t magnitude = value < 0 ? -value : value;
    int32_t share = utvm_int16(utvm_twice_inverse16(utvm_exp16(-magnitude, 3)) * 2);
    return value > 0 ? share : 32767 - share;
}

static inline int32_t utvm_tanh16(int32_t value, int32_t integer_bits) {
    if (value == 0) {
        return 0;
    }
    // exp(2 x) is exp(x) of the same number with one more integer bit.
    int32_t power = utvm_exp16(value < 0 ? value : -value, integer_bits + 1);
    int32_t share = utvm_int16((utvm_twice_inverse16(power) - (1 << 13)) * 4);
    return value < 0 ? -share : share;
}

// value / 2^bits, half away from zero; also for 0 bits.
static inline int32_t utvm_divided(int32_t value, int32_t bits) {
    return bits > 0 ? utvm_rounded_shift(value, bits) : value;
}
