static inline void utvm_fill_words(int8_t *to, int32_t border, int32_t count) {
    const uint32_t word = (uint32_t)(uint8_t)border * 0x01010101u;
    for (; count >= 4; count -= 4, to += 4) {
        __builtin_memcpy(to, &word, 4);
    }
    for (; count > 0; count--) {
        *to++ = (int8_t)border;
    }
}

// The rows under the windows of output row `row`, with their border: `rows` x `columns` pixels of
// `pitch` bytes each, of which `channels` are copied.
static void utvm_copy_rows(const int8_t *image, int8_t *to, int32_t first_row, int32_t first_column,
                           int32_t height, int32_t width, int32_t channels, int32_t pitch,
                           int32_t rows, int32_t row_step, int32_t columns, int32_t border) {
    const int32_t left = first_column < 0 ? -first_column : 0;
    int32_t inside = width - first_column;
    inside = (inside > columns ? columns : inside) - left;
    for (int32_t r = 0; r < rows; r++, first_row += row_step, to += columns * pitch) {
        if (first_row < 0 || first_row >= height || inside <= 0) {
            utvm_fill_words(to, border, columns * pitch);
            continue;
        }
        const int8_t *from = image + (first_row * width + first_column + left) * channels;
        utvm_fill_words(to, border, left * pitch);
        if (pitch == channels) {
            __builtin_memcpy(to + left * pitch, from, (uint32_t)(inside * channels));
        } else {
            for (int32_t x = 0; x < inside; x++, from += channels) {
                for (int32_t c = 0; c < channels; c++) {
                    to[(left + x) * pitch + c] = from[c];
                }
            }
        }
        utvm_fill_words(to + (left + inside) * pitch, border, (columns - left - inside) * pitch);
    }
}
