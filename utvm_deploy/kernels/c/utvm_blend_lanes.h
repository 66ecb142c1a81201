// As utvm_blend, where all weights are multiples of 1 << 12: in 1/256 two sums
// without signs fit a word.
static inline void utvm_blend_lanes(const int8_t *a, const int8_t *b, const int8_t *c,
                                    const int8_t *d, const int32_t *given, int8_t *output,
                                    int32_t count) {
    const uint32_t weights[4] = {(uint32_t)(given[0] >> 12), (uint32_t)(given[1] >> 12),
                                 (uint32_t)(given[2] >> 12), (uint32_t)(given[3] >> 12)};
    int32_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const uint32_t w[4] = {utvm_word(a + i) ^ 0x80808080u, utvm_word(b + i) ^ 0x80808080u,
                               utvm_word(c + i) ^ 0x80808080u, utvm_word(d + i) ^ 0x80808080u};
        uint32_t even = 0, odd = 0;
        for (int32_t n = 0; n < 4; n++) {
            even += (w[n] & 0x00FF00FFu) * weights[n];
            odd += ((w[n] >> 8) & 0x00FF00FFu) * weights[n];
        }
        // Halves go away from what is zero with the sign.
        even += 0x007F007Fu + ((even >> 15) & 0x00010001u);
        odd += 0x007F007Fu + ((odd >> 15) & 0x00010001u);
        even = (even >> 8) & 0x00FF00FFu;
        utvm_store_word(output + i, (even | (odd & 0xFF00FF00u)) ^ 0x80808080u);
    }
    for (; i < count; i++) {
        output[i] = (int8_t)utvm_weighted(a[i], b[i], c[i], d[i], given);
    }
}
