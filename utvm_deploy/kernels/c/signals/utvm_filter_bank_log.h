// The natural logarithm in 16 fractional bits: the number of bits, the fraction behind the first
// one, and what the logarithm of that lies above the straight line, by a table of 128 segments.
static inline uint32_t utvm_log_of_bits(uint32_t value, const uint16_t *above) {
    uint32_t whole = 0;
    while (whole < 31 && value >> (whole + 1)) {
        whole++;
    }
    const uint32_t rest = value - ((uint32_t)1 << whole);
    const uint32_t part = whole < 16 ? rest << (16 - whole) : rest >> (whole - 16);
    const uint32_t segment = part >> 9;
    const int32_t low = above[segment], rise = above[segment + 1] - low;
    const int32_t inside = (rise * (int32_t)(part - 512 * segment)) >> 16;
    const uint32_t octaves = (whole << 16) + part + (uint32_t)(low + inside);
    return (uint32_t)(((uint64_t)45426 * octaves + 32768) >> 16);
}

static inline void utvm_filter_bank_log(const uint32_t *input, const uint16_t *above,
                                        int16_t *output, int32_t channels, int32_t scale,
                                        int32_t up) {
    for (int32_t i = 0; i < channels; i++) {
        const uint32_t value = input[i] << up;
        uint32_t made = 0;
        if (value > 1) {
            made = ((uint32_t)scale * utvm_log_of_bits(value, above) + 32768u) >> 16;
        }
        output[i] = (int16_t)(made < INT16_MAX ? made : INT16_MAX);
    }
}
