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

// An image resized: `rows` and `columns` have, for each of the output's, both
// neighbours and the second one's share in 1/1024.
static inline void utvm_bilinear(const int8_t *image, const int32_t *rows, const int32_t *columns,
                                 int8_t *output, int32_t height, int32_t width, int32_t channels,
                                 int32_t output_height, int32_t output_width, int32_t batch) {
    for (int32_t n = 0; n < batch; n++, image += height * width * channels) {
        for (int32_t y = 0; y < output_height; y++) {
            const int32_t *row = rows + 3 * y;
            const int8_t *upper = image + row[0] * width * channels;
            const int8_t *lower = image + row[1] * width * channels;
            for (int32_t x = 0; x < output_width; x++, output += channels) {
                const int32_t *column = columns + 3 * x;
                const int32_t left = column[0] * channels;
                const int32_t right = column[1] * channels;
                const int32_t both = row[2] * column[2];
                const int32_t weights[4] = {(1024 - row[2]) * (1024 - column[2]),
                                            1024 * row[2] - both, 1024 * column[2] - both, both};
                utvm_blend(upper + left, lower + left, upper + right, lower + right, weights,
                           output, channels);
            }
        }
    }
}
