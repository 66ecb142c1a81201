// Fixed-point arithmetic that the kernels share: bit for bit that of LiteRT's
// reference kernels. Right shifts of negative values are arithmetic, as in
// every compiler for the cores that are supported.

// value * multiplier * 2^(shift - 31), rounded to nearest after the multiply
// and half away from zero after the right shift. The multiplier is never
// negative; a left shift wraps.
static inline int32_t utvm_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    if (shift > 0) {
        value = (int32_t)((uint32_t)value << shift);
    }
    value = (int32_t)(((int64_t)value * multiplier + ((int64_t)1 << 30)) >> 31);
    if (shift < 0) {
        // Minus one if negative makes halves go away from zero; neither sum
        // overflows, because |value| is at most 2^31 - 1 times multiplier/2^31.
        value += value >> 31;
        value = ((value >> (-shift - 1)) + 1) >> 1;
    }
    return value;
}

// value * (high * 2^26 + low) * 2^-(shift + 26), half away from zero. Results
// beyond +-1024, far outside int8, are cut there.
static inline int32_t utvm_requantize_exact(int32_t value, int32_t high, int32_t low,
                                            int32_t shift)
{
    uint64_t magnitude = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    uint64_t product = magnitude * (uint32_t)high + ((magnitude * (uint32_t)low) >> 26);
    uint64_t rounded = (product + ((uint64_t)1 << (shift - 1))) >> shift;
    int32_t result = rounded > 1024u ? 1024 : (int32_t)rounded;
    return value < 0 ? -result : result;
}

static inline int32_t utvm_add(int32_t left, int32_t right)
{
    return (int32_t)((uint32_t)left + (uint32_t)right);
}

static inline int32_t utvm_clamp(int32_t value, int32_t low, int32_t high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}
