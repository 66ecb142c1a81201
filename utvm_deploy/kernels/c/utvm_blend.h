// The mean of four bytes by weights that come to 1 << 20, half away from zero.
static inline int32_t utvm_weighted(int32_t a, int32_t b, int32_t c, int32_t d,
                                    const int32_t *weights) {
    int32_t total = a * weights[0] + b * weights[1] + c * weights[2] + d * weights[3];
    return (total + (total >> 31) + (1 << 19)) >> 20;
}

static inline void utvm_blend(const int8_t *a, const int8_t *b, const int8_t *c, const int8_t *d,
                              const int32_t *given, int8_t *output, int32_t count) {
    const int32_t weights[4] = {given[0], given[1], given[2], given[3]};
    int32_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const uint32_t w[4] = {utvm_word(a + i), utvm_word(b + i), utvm_word(c + i),
                               utvm_word(d + i)};
        uint32_t made = 0;
        for (int32_t bits = 0; bits < 32; bits += 8) {
            int32_t value = utvm_weighted(utvm_byte(w[0], bits), utvm_byte(w[1], bits),
                                          utvm_byte(w[2], bits), utvm_byte(w[3], bits), weights);
            made |= ((uint32_t)value & 0xFFu) << bits;
        }
        utvm_store_word(output + i, made);
    }
    for (; i < count; i++) {
        output[i] = (int8_t)utvm_weighted(a[i], b[i], c[i], d[i], weights);
    }
}
