// The geometry of a convolution over columns.
struct utvm_columns_window {
    int32_t height, width, channels; // of the image
    int32_t rows, row_stride, row_dilation, top;
    int32_t front;  // columns before the image
    int32_t inside; // columns of the image that windows see; 0: as many as pixels
    int32_t first;  // pixel of the image that is the first of them
    int32_t apart;  // pixels of the image from one of them to the next
    int32_t quads;  // of a pixel; 0: channels of a column follow each other
    int32_t column; // values of a column
};

static void utvm_fill_column_words(int16_t *to, int32_t value, int32_t words) {
    const uint32_t word = (uint32_t)(value & 0xffff) * 0x10001u;
    for (; words > 0; words--, to += 2) {
        __builtin_memcpy(to, &word, 4);
    }
}

// One value of each of `count` columns, from bytes that lie `step` apart; 0: all the same.
static void utvm_fill_value(int16_t *to, const int8_t *from, int32_t count, int32_t column,
                            int32_t step) {
    for (int32_t n = 0; n < count; n++, to += column, from += step) {
        *to = *from;
    }
}

// Where a value of a column stands.
static inline int32_t utvm_column_place(int32_t value) {
    return (value & ~3) + (value & 1) * 2 + (value >> 1 & 1);
}

// The columns under `count` rows of windows from row `y` and pixel `x` on, `columns` in each row.
// `is_first`: nothing is there yet, neither borders.
UTVM_ONCE static void utvm_fill_columns(const int8_t *image, int16_t *to, int32_t y, int32_t x,
                                        int32_t count, int32_t columns, int32_t is_first,
                                        int32_t border, const int32_t *geometry) {
    struct utvm_columns_window window;
    __builtin_memcpy(&window, geometry, sizeof window);
    const struct utvm_columns_window *const w = &window;
    const int32_t pixel = 4 * window.quads;
    const int32_t column = window.column;
    const int32_t inside = window.inside > 0 ? window.inside : columns;
    const int8_t *const end = image + window.height * window.width * window.channels;
    const int32_t step = window.apart * window.channels;
    x += window.first;
    if (is_first && (window.top > 0 || window.front > 0 || inside < columns ||
                     (y + count - 1) * w->row_stride + (w->rows - 1) * w->row_dilation >=
                         window.top + window.height)) {
        utvm_fill_column_words(to, border, count * columns * column / 2);
    }
    for (int32_t r = 0; r < count; r++, to += columns * column) {
        for (int32_t ky = 0; ky < window.rows; ky++) {
            const int32_t row = (y + r) * window.row_stride - window.top + ky * window.row_dilation;
            int16_t *wide = to + window.front * column + ky * pixel;
            if (window.quads == 0) {
                const int8_t outside = (int8_t)border;
                const int32_t is_inside = row >= 0 && row < window.height;
                const int8_t *from =
                    is_inside ? image + (row * window.width + x) * window.channels : &outside;
                for (int32_t c = 0; c < window.channels && (is_inside || !is_first); c++) {
                    utvm_fill_value(wide + utvm_column_place(ky * window.channels + c),
                                    is_inside ? from + c : from, inside, column,
                                    is_inside ? step : 0);
                }
                continue;
            }
            if (row >= 0 && row < window.height) {
                const int8_t *from = image + (row * window.width + x) * window.channels;
                int32_t whole = inside;
                if (column == window.channels && step == column) {
                    // One run of bytes.
                    utvm_widen_columns(wide, from, 1, window.quads * inside, 0, 0);
                    continue;
                }
                while (whole > 0 && from + (whole - 1) * step + pixel > end) {
                    // The last words would reach behind the image.
                    whole--;
                    const int8_t *last = from + whole * step;
                    int16_t *there = wide + whole * column;
                    for (int32_t c = 0; c < window.channels; c++) {
                        there[utvm_column_place(c)] = last[c];
                    }
                }
                if (whole > 0) {
                    utvm_widen_columns(wide, from, whole, window.quads, step, 2 * column);
                }
            } else if (!is_first) {
                for (int32_t n = 0; n < inside; n++) {
                    utvm_fill_column_words(wide + n * column, border, pixel / 2);
                }
            }
        }
    }
}
