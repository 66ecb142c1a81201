// The rows under the windows of an output row, with their border: `rows` x `columns` pixels of
// `pitch` bytes each, in which each of the `channels` stands `repeats` times.
static void utvm_rows_copy(const int8_t *image, int8_t *to, int32_t first_row, int32_t first_column,
                           int32_t height, int32_t width, int32_t channels, int32_t repeats,
                           int32_t pitch, int32_t rows, int32_t row_step, int32_t columns,
                           int32_t border) {
    const int32_t left = first_column < 0 ? -first_column : 0;
    int32_t inside = width - first_column;
    inside = (inside > columns ? columns : inside) - left;
    for (int32_t r = 0; r < rows; r++, first_row += row_step) {
        if (first_row < 0 || first_row >= height || inside <= 0) {
            to = utvm_bytes_fill(to, border, columns * pitch);
            continue;
        }
        const int8_t *from = image + (first_row * width + first_column + left) * channels;
        to = utvm_bytes_fill(to, border, left * pitch);
        if (repeats > 1) {
            for (int32_t x = 0; x < inside; x++, to += pitch) {
                for (int32_t c = 0; c < channels * repeats; c += repeats) {
                    utvm_bytes_fill(to + c, *from++, repeats);
                }
            }
        } else if (pitch == channels) {
            to = utvm_bytes_copy(to, from, inside * channels);
        } else {
            for (int32_t x = 0; x < inside; x++, from += channels, to += pitch) {
                utvm_bytes_copy(to, from, channels);
            }
        }
        to = utvm_bytes_fill(to, border, (columns - left - inside) * pitch);
    }
}
