// x / (pi/2) for a finite x of this magnitude: the nearest whole number modulo
// 4 is the result, and sign * mantissa * 2^(exponent - 31) is the rest.
typedef struct {
    uint32_t sign;
    uint32_t mantissa;
    int32_t exponent;
} utvm_turn_t;

static inline uint32_t utvm_quarter_turns(uint32_t magnitude, utvm_turn_t *rest) {
    // 32 zeros, and then the digits of 2/pi.
    static const uint32_t digits[8] = {0u,          0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                       0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    uint32_t mantissa;
    const int32_t exponent = utvm_split_float(magnitude, &mantissa);
    if (magnitude < 0x3f490fdbu) { // pi/4
        const uint64_t product = (uint64_t)mantissa * digits[1];
        const int32_t zero = product >> 63 ? 0 : 1;
        rest->sign = 0u;
        rest->mantissa = (uint32_t)(product << zero >> 32);
        rest->exponent = exponent - zero;
        return 0u;
    }
    int32_t place;
    uint64_t turns;
    if (exponent < 8) {
        const uint32_t fixed = mantissa >> (7 - exponent); // Q24, exact
        place = 56;
        turns = (uint64_t)fixed * digits[1] + utvm_upper(fixed, digits[2]);
    } else {
        // Digits that count 4 and more, times the mantissa, are whole turns.
        const uint32_t first = (uint32_t)(exponent + 7);
        const uint32_t index = first >> 5;
        const uint32_t shift = first & 31u;
        uint32_t window[3];
        for (uint32_t i = 0; i < 3u; i++) {
            const uint64_t pair = (uint64_t)digits[index + i] << 32 | digits[index + i + 1u];
            window[i] = (uint32_t)(pair << shift >> 32);
        }
        mantissa >>= 8;
        place = 62;
        turns = ((uint64_t)(mantissa * window[0]) << 32) + (uint64_t)mantissa * window[1] +
                utvm_upper(mantissa, window[2]);
    }
    const uint64_t half = (uint64_t)1 << (place - 1);
    const uint32_t whole = (uint32_t)((turns + half) >> place);
    turns -= (uint64_t)whole << place;
    rest->sign = turns >> 63 ? 0x80000000u : 0u;
    turns = rest->sign != 0u ? 0u - turns : turns;
    const int32_t zeros = utvm_zeros_above_wide(turns);
    rest->mantissa = (uint32_t)(turns << zeros >> 32);
    rest->exponent = 63 - zeros - place;
    return whole;
}

// The square of the rest, in Q32.
static inline uint32_t utvm_square_of_rest(const utvm_turn_t *rest) {
    const int32_t shift = -1 - rest->exponent;
    const uint32_t fixed = shift > 31 ? 0u : rest->mantissa >> shift;
    return utvm_upper(fixed, fixed);
}

// Sine of rest * pi/2: the exponent, and the mantissa. Each term of the
// polynomial is in Q31.
static inline int32_t utvm_sine_of_rest(const utvm_turn_t *rest, uint32_t *mantissa) {
    const uint32_t u = utvm_square_of_rest(rest);
    uint32_t p = 10052943u - utvm_upper(339746u, u);
    p = 171138518u - utvm_upper(p, u);
    p = 1387197334u - utvm_upper(p, u);
    p = 3373259426u - utvm_upper(p, u);
    const uint64_t product = (uint64_t)rest->mantissa * p;
    const int32_t zero = product >> 63 ? 0 : 1;
    *mantissa = (uint32_t)(product << zero >> 32);
    return rest->exponent + 1 - zero;
}

static inline int32_t utvm_cosine_of_rest(const utvm_turn_t *rest, uint32_t *mantissa) {
    const uint32_t u = utvm_square_of_rest(rest);
    uint32_t p = 44796662u - utvm_upper(1940534u, u);
    p = 544750467u - utvm_upper(p, u);
    p = 2649351738u - utvm_upper(p, u);
    p = 0x80000000u - utvm_upper(p, u);
    const int32_t zero = p >> 31 ? 0 : 1;
    *mantissa = p << zero;
    return -zero;
}
