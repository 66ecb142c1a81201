// Fixed-point arithmetic that the kernels share: bit for bit that of LiteRT's
// reference kernels.

// C99 leaves two things to the compiler. The kernels need right shifts of
// negative values that are arithmetic, and conversions to signed types that
// wrap. This line compiles only where both hold.
typedef char utvm_shifts_are_arithmetic_and_conversions_wrap
    [(int32_t)-3 >> 1 == -2 && (int64_t)-3 >> 1 == -2 && (int32_t)0xFFFFFFFEu == -2 ? 1 : -1];

// A function that one call keeps busy: its code stands once, at any level.
#if defined(__clang__)
#define UTVM_ONCE __attribute__((noinline))
#elif defined(__GNUC__)
#define UTVM_ONCE __attribute__((noinline, noclone))
#else
#define UTVM_ONCE
#endif

// value * multiplier * 2^(shift - 31), rounded to nearest after the multiply
// and half away from zero after the right shift. The multiplier is never
// negative; a left shift wraps.
static inline int32_t utvm_requantize(int32_t value, int32_t multiplier, int32_t shift) {
    // Without a branch: compilers would compute the product on both sides.
    int32_t left = shift & ~(shift >> 31);
    value = (int32_t)((uint32_t)value << left);
    value = (int32_t)(((int64_t)value * multiplier + ((int64_t)1 << 30)) >> 31);
    if (shift < 0) {
        // Minus one if negative makes halves go away from zero; neither sum
        // overflows, because |value| is at most 2^31 - 1 times multiplier/2^31.
        value += value >> 31;
        value = ((value >> ~shift) + 1) >> 1; // ~shift is -shift - 1
    }
    return value;
}

// The same where |value| is 2^30 at most and the shift between -30 and -1.
static inline int32_t utvm_requantize_right(int32_t value, int32_t multiplier, int32_t shift) {
    value = (int32_t)(((int64_t)value * multiplier + ((int64_t)1 << 30)) >> 31);
    return (value + (value >> 31) + (1 << ~shift)) >> -shift;
}

// value * (high * 2^26 + low) * 2^-(shift + 26), half away from zero. Results
// beyond +-1024, far outside int8, are cut there.
static inline int32_t utvm_requantize_exact(int32_t value, int32_t high, int32_t low,
                                            int32_t shift) {
    uint64_t magnitude = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    uint64_t product = magnitude * (uint32_t)high + ((magnitude * (uint32_t)low) >> 26);
    uint64_t rounded = (product + ((uint64_t)1 << (shift - 1))) >> shift;
    int32_t result = rounded > 1024u ? 1024 : (int32_t)rounded;
    return value < 0 ? -result : result;
}

// The same for sums of up to 36 bits; results beyond +-131072, far outside
// int16, are cut there.
static inline int32_t utvm_requantize_exact_wide(int64_t value, int32_t high, int32_t low,
                                                 int32_t shift) {
    uint64_t magnitude = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
    uint64_t product = magnitude * (uint32_t)high + ((magnitude * (uint32_t)low) >> 26);
    uint64_t rounded = (product + ((uint64_t)1 << (shift - 1))) >> shift;
    int32_t result = rounded > 131072u ? 131072 : (int32_t)rounded;
    return value < 0 ? -result : result;
}

// value * multiplier * 2^(shift - 15), half up. The reference cuts the result
// to 32 bits, too.
static inline int32_t utvm_requantize_wide(int64_t value, int32_t multiplier, int32_t shift) {
    int32_t bits = 15 - shift;
    return (int32_t)((value * multiplier + ((int64_t)1 << (bits - 1))) >> bits);
}

static inline int32_t utvm_add(int32_t left, int32_t right) {
    return (int32_t)((uint32_t)left + (uint32_t)right);
}

static inline int32_t utvm_clamp(int32_t value, int32_t low, int32_t high) {
    value = value < low ? low : value;
    return value > high ? high : value;
}

// value / divisor, half away from zero; divisor > 0.
static inline int32_t utvm_divide(int32_t value, int32_t divisor) {
    int32_t half = divisor / 2;
    return (value > 0 ? value + half : value - half) / divisor;
}

// Half away from zero. Values far outside int16, and NaN as the smallest, are
// cut to +-131072, so that the conversion is defined.
static inline int32_t utvm_quantize(float value) {
    if (!(value > -131072.0f)) {
        return -131072;
    }
    if (value > 131072.0f) {
        return 131072;
    }
    int32_t whole = (int32_t)value;
    float rest = value - (float)whole;
    if (rest >= 0.5f) {
        whole += 1;
    } else if (rest <= -0.5f) {
        whole -= 1;
    }
    return whole;
}

// utvm_quantize(value / scale), by the reciprocal of the scale, which has 32 bits:
// 1 / scale = reciprocal * 2^(126 - bits - exponent).
//
// Its product with the value's 24 bits is the quotient in steps of 2^-bits, rounded towards zero:
// off by less than 2 steps. The quotient in float32 is off by at most 2^-24 of itself, which is
// less than margin - 2 steps as long as the shift is least or more. So the product rounds as the
// quotient in float32 does, if it is farther than margin from a half. The few others are divided.
// So are large values, infinity and NaN, whose shift is less than least.
static inline int32_t utvm_quantize_by(float value, float scale, int32_t reciprocal,
                                       int32_t exponent, int32_t bits, int32_t least,
                                       int32_t margin) {
    uint32_t word;
    __builtin_memcpy(&word, &value, sizeof word);
    int32_t shift = exponent - (int32_t)((word >> 23) & 255u);
    if (shift > 31) {
        return 0;
    }
    if (shift >= least) {
        uint64_t product = (uint64_t)((word << 8) | 0x80000000u) * (uint32_t)reciprocal;
        int32_t steps = (int32_t)((uint32_t)(product >> 32) >> shift);
        int32_t sign = -(int32_t)(word >> 31);
        int32_t above = ((steps ^ sign) - sign) + (1 << (bits - 1));
        if ((((uint32_t)(above + margin)) & ((1u << bits) - 1u)) >= 2u * (uint32_t)margin) {
            return above >> bits;
        }
    }
    return utvm_quantize(value / scale);
}

// left * right / 2^31, half up.
static inline int32_t utvm_high_product(int32_t left, int32_t right) {
    return (int32_t)(((int64_t)left * right + ((int64_t)1 << 30)) >> 31);
}

// value / 2^bits, half away from zero; bits >= 1.
static inline int32_t utvm_rounded_shift(int32_t value, int32_t bits) {
    if (bits > 32) {
        return 0;
    }
    int64_t raised = (int64_t)value + (value >> 31) + ((int64_t)1 << (bits - 1));
    return (int32_t)(raised >> bits);
}

// value * 2^bits, saturated.
static inline int32_t utvm_saturated_shift(int32_t value, int32_t bits) {
    int64_t wide = (int64_t)value * ((int64_t)1 << bits);
    wide = wide > INT32_MAX ? INT32_MAX : wide;
    return (int32_t)(wide < INT32_MIN ? INT32_MIN : wide);
}

static inline int32_t utvm_leading_zeros(uint32_t value) {
#if defined(__GNUC__)
    return value == 0u ? 32 : __builtin_clz(value);
#else
    int32_t zeros = 32;
    while (value != 0u) {
        value >>= 1;
        zeros -= 1;
    }
    return zeros;
#endif
}

// 1 / (sum's fraction in [1, 2)) as Q0.31, for a positive sum: three
// Newton-Raphson steps on 48/17 - 32/17 d in Q2.29.
static inline int32_t utvm_reciprocal(int32_t sum) {
    uint32_t fraction = ((uint32_t)sum << utvm_leading_zeros((uint32_t)sum)) - 0x80000000u;
    int32_t half = (int32_t)(((int64_t)fraction + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + utvm_high_product(half, -1010580540);
    for (int32_t step = 0; step < 3; ++step) {
        int32_t error = (1 << 29) - utvm_high_product(half, x);
        x += utvm_saturated_shift(utvm_high_product(x, error), 2);
    }
    return utvm_saturated_shift(x, 1);
}
