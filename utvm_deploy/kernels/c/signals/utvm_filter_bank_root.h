// The rounded square root of 64 bits, bit by bit. It is at most what the result has bits for,
// which are 16 for numbers of 32 bits.
static inline uint32_t utvm_rounded_root(uint64_t value) {
    const uint32_t most = value >> 32 ? UINT32_MAX : UINT16_MAX;
    uint64_t root = 0, rest = value;
    for (uint64_t bit = value >> 32 ? (uint64_t)1 << 62 : (uint64_t)1 << 30; bit; bit >>= 2) {
        const uint64_t tried = root + bit;
        root >>= 1;
        if (rest >= tried) {
            rest -= tried;
            root += bit;
        }
    }
    return (uint32_t)(rest > root && root != most ? root + 1 : root);
}

static inline void utvm_filter_bank_root(const uint64_t *input, const int32_t *bits,
                                         uint32_t *output, int32_t channels) {
    for (int32_t i = 0; i < channels; i++) {
        output[i] = utvm_rounded_root(input[i]) >> (*bits & 31);
    }
}
