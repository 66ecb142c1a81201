// As utvm_bilinear, where all shares are in 1/16 and pixels are whole words: two sums without signs
// fit a word. First, two rows of the input become a line, whose pixels then serve several outputs.

// Of each four bytes come the first and the third, then the others.
UTVM_ONCE static void utvm_blend_rows(const int8_t *upper, const int8_t *lower, int32_t share,
                                      uint32_t *line, int32_t count) {
    const uint32_t second = (uint32_t)share, first = 16u - second;
    for (int32_t i = 0; i < count; i += 4, line += 2) {
        const uint32_t above = utvm_word(upper + i) ^ 0x80808080u;
        const uint32_t below = utvm_word(lower + i) ^ 0x80808080u;
        line[0] = (above & 0x00FF00FFu) * first + (below & 0x00FF00FFu) * second;
        line[1] = ((above >> 8) & 0x00FF00FFu) * first + ((below >> 8) & 0x00FF00FFu) * second;
    }
}

// Halves go away from what is zero with the sign.
static inline uint32_t utvm_blend_halves(uint32_t sums) {
    return sums + 0x007F007Fu + ((sums >> 15) & 0x00010001u);
}

UTVM_ONCE static void utvm_blend_pixels(const uint32_t *left, const uint32_t *right, int32_t share,
                                        int8_t *output, int32_t count) {
    const uint32_t second = (uint32_t)share, first = 16u - second;
    for (int32_t i = 0; i < count; i += 4, left += 2, right += 2) {
        const uint32_t even = utvm_blend_halves(left[0] * first + right[0] * second);
        const uint32_t odd = utvm_blend_halves(left[1] * first + right[1] * second);
        const uint32_t made = ((even >> 8) & 0x00FF00FFu) | (odd & 0xFF00FF00u);
        utvm_store_word(output + i, made ^ 0x80808080u);
    }
}

// `rows` and `columns` have both neighbours and the second one's share in 1/1024.
static inline void utvm_bilinear_lines(const int8_t *image, const int32_t *rows,
                                       const int32_t *columns, int8_t *output, uint32_t *line,
                                       int32_t height, int32_t width, int32_t channels,
                                       int32_t output_height, int32_t output_width, int32_t batch) {
    const int32_t pitch = width * channels, words = channels >> 1;
    for (int32_t n = 0; n < batch; n++, image += height * pitch) {
        for (int32_t y = 0; y < output_height; y++) {
            const int32_t *row = rows + 3 * y;
            const int8_t *upper = image + row[0] * pitch, *lower = image + row[1] * pitch;
            utvm_blend_rows(upper, lower, row[2] >> 6, line, pitch);
            for (int32_t x = 0; x < output_width; x++, output += channels) {
                const int32_t *column = columns + 3 * x;
                const uint32_t *left = line + column[0] * words, *right = line + column[1] * words;
                utvm_blend_pixels(left, right, column[2] >> 6, output, channels);
            }
        }
    }
}
