// Whole groups of four channels, and each of the rest by itself.
static inline void utvm_wide_depthwise_pixel(const int16_t *first, const int8_t *weights,
                                             const int32_t *scaling, int16_t *output,
                                             int32_t *walk) {
    const int32_t channels = walk[6], whole = channels & ~3;
    if (whole > 0) {
        walk[6] = whole;
        utvm_wide_depthwise_four(first, weights, scaling, output, walk);
        walk[6] = channels;
    }
    for (int32_t c = whole; c < channels; c++) {
        const int32_t *s = scaling + c / 4 * 16 + c % 4;
        const int16_t *x = first + c;
        const int8_t *w = weights + c / 4 * walk[5] + c % 4;
        int32_t sum = s[0];
        for (int32_t row = 0; row < walk[0]; row++) {
            for (int32_t column = 0; column < walk[1]; column++) {
                sum += *x * *w;
                x += walk[3] / 2;
                w += 4;
            }
            x += walk[2] / 2;
            w += walk[4];
        }
        int32_t value = ((int32_t)(((int64_t)sum * s[4]) >> 32) + s[8]) >> s[12];
        output[c] = (int16_t)utvm_clamp(value, walk[7], walk[8]);
    }
}
