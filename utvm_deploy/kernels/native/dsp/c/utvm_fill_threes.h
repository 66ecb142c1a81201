// The geometry of a convolution over columns.
struct utvm_threes_window {
    int32_t height, width, channels; // of the image
    int32_t rows, row_stride, row_dilation, top;
    int32_t front;  // columns before the image
    int32_t inside; // columns of the image that windows see; 0: as many as pixels
    int32_t first;  // pixel of the image that is the first of them
    int32_t apart;  // pixels of the image from one of them to the next
    int32_t quads;  // 0
    int32_t column; // values of a column
};

static void utvm_fill_threes_words(int16_t *to, int32_t value, int32_t words) {
    const uint32_t word = (uint32_t)(value & 0xffff) * 0x10001u;
    for (; words > 0; words--, to += 2) {
        __builtin_memcpy(to, &word, 4);
    }
}

// `pixels` of one row or two rows; the steps are from pixel to pixel.
static void utvm_fill_three_rows(int16_t *to, const int8_t *const *from, const int32_t *step,
                                 int32_t pixels, int32_t column, int32_t is_pair) {
    if (is_pair) {
        utvm_widen_threes(to, from[0], from[1], pixels, step[0], step[1], 2 * column);
    } else {
        utvm_widen_last_three(to, from[0], pixels, step[0], 2 * column);
    }
}

// The columns under `count` rows of windows from row `y` and pixel `x` on, `columns` in each row.
// `is_first`: nothing is there yet, neither borders.
UTVM_ONCE static void utvm_fill_threes(const int8_t *image, int16_t *to, int32_t y, int32_t x,
                                       int32_t count, int32_t columns, int32_t is_first,
                                       int32_t border, const int32_t *geometry) {
    struct utvm_threes_window window;
    __builtin_memcpy(&window, geometry, sizeof window);
    const int32_t column = window.column;
    const int32_t inside = window.inside > 0 ? window.inside : columns;
    const int8_t *const end = image + window.height * window.width * window.channels;
    const int32_t apart = window.apart * window.channels;
    const int8_t value = (int8_t)border;
    const int8_t outside[4] = {value, value, value, value};
    const int32_t last_row =
        (y + count - 1) * window.row_stride - window.top + (window.rows - 1) * window.row_dilation;
    x += window.first;
    if (is_first &&
        (window.top > 0 || window.front > 0 || inside < columns || last_row >= window.height)) {
        utvm_fill_threes_words(to, border, count * columns * column / 2);
    }
    for (int32_t r = 0; r < count; r++, to += columns * column) {
        int16_t *wide = to + window.front * column;
        for (int32_t ky = 0; ky < window.rows; ky += 2, wide += 6) {
            const int32_t rows = ky + 1 < window.rows ? 2 : 1;
            const int8_t *from[2] = {outside, outside};
            int32_t step[2] = {0, 0};
            int32_t whole = inside;
            int32_t is_seen = !is_first; // the borders that are there stay
            for (int32_t k = 0; k < rows; k++) {
                const int32_t row =
                    (y + r) * window.row_stride - window.top + (ky + k) * window.row_dilation;
                if (row >= 0 && row < window.height) {
                    from[k] = image + (row * window.width + x) * window.channels;
                    step[k] = apart;
                    is_seen = 1;
                    if (from[k] + (inside - 1) * apart + 4 > end) {
                        // The last word would reach behind the image.
                        whole = inside - 1;
                    }
                }
            }
            if (!is_seen) {
                continue;
            }
            if (whole > 0) {
                utvm_fill_three_rows(wide, from, step, whole, column, rows == 2);
            }
            if (whole < inside) {
                int8_t last[2][4] = {{0}};
                for (int32_t k = 0; k < rows; k++) {
                    __builtin_memcpy(last[k], from[k] + whole * step[k], 3);
                    from[k] = last[k];
                }
                utvm_fill_three_rows(wide + whole * column, from, step, 1, column, rows == 2);
            }
        }
    }
}
