// The geometry of a convolution.
struct utvm_windows {
    int32_t height, width, channels, output_width;
    int32_t rows, columns;
    int32_t row_stride, column_stride, row_dilation, column_dilation;
    int32_t top, left;
    int32_t pitch; // bytes from window to window; what is filled up may hold anything
};

// One row of the window at column x; `row` is null outside the image.
static inline int8_t *utvm_windows_row(int8_t *to, const int8_t *row, int32_t x, int32_t border,
                                       const struct utvm_windows *w) {
    const int32_t channels = w->channels;
    if (row == 0) {
        return utvm_bytes_fill(to, border, w->columns * channels);
    }
    if (w->column_dilation == 1) {
        // Columns of the window before, in and behind the image.
        int32_t before = x < 0 ? -x : 0;
        before = before > w->columns ? w->columns : before;
        int32_t last = x + w->columns > w->width ? w->width - x : w->columns;
        last = last < before ? before : last;
        to = utvm_bytes_fill(to, border, before * channels);
        to = utvm_bytes_copy(to, row + (x + before) * channels, (last - before) * channels);
        return utvm_bytes_fill(to, border, (w->columns - last) * channels);
    }
    for (int32_t kx = 0; kx < w->columns; kx++, x += w->column_dilation) {
        if (x < 0 || x >= w->width) {
            to = utvm_bytes_fill(to, border, channels);
        } else {
            to = utvm_bytes_copy(to, row + x * channels, channels);
        }
    }
    return to;
}
