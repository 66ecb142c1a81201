// The geometry of a convolution over columns.
struct utvm_ones_window {
    int32_t height, width, channels; // of the image
    int32_t rows, row_stride, row_dilation, top;
    int32_t front;  // columns before the image
    int32_t inside; // columns of the image that windows see; 0: as many as pixels
    int32_t first;  // pixel of the image that is the first of them
    int32_t apart;  // pixels of the image from one of them to the next
    int32_t quads;  // 0
    int32_t column; // values of a column
};

static void utvm_fill_ones_words(int16_t *to, int32_t value, int32_t words) {
    const uint32_t word = (uint32_t)(value & 0xffff) * 0x10001u;
    for (; words > 0; words--, to += 2) {
        __builtin_memcpy(to, &word, 4);
    }
}

// The columns under `count` rows of windows from row `y` and pixel `x` on, `columns` in each row.
// `is_first`: nothing is there yet, neither borders.
UTVM_ONCE static void utvm_fill_ones(const int8_t *image, int16_t *to, int32_t y, int32_t x,
                                     int32_t count, int32_t columns, int32_t is_first,
                                     int32_t border, const int32_t *geometry) {
    struct utvm_ones_window window;
    __builtin_memcpy(&window, geometry, sizeof window);
    const int32_t column = window.column;
    const int32_t inside = window.inside > 0 ? window.inside : columns;
    const int8_t outside = (int8_t)border;
    const int32_t last_row =
        (y + count - 1) * window.row_stride - window.top + (window.rows - 1) * window.row_dilation;
    x += window.first;
    if (is_first &&
        (window.top > 0 || window.front > 0 || inside < columns || last_row >= window.height)) {
        utvm_fill_ones_words(to, border, count * columns * column / 2);
    }
    for (int32_t r = 0; r < count; r++, to += columns * column) {
        int16_t *wide = to + window.front * column;
        for (int32_t ky = 0; ky < window.rows; ky += 2, wide += 2) {
            const int8_t *from[2] = {&outside, &outside};
            int32_t step[2] = {0, 0};
            for (int32_t k = 0; k < 2; k++) {
                // The weights behind the last row are 0, so any row will do there.
                const int32_t ahead = ky + k < window.rows ? ky + k : ky;
                const int32_t row =
                    (y + r) * window.row_stride - window.top + ahead * window.row_dilation;
                if (row >= 0 && row < window.height) {
                    from[k] = image + (row * window.width + x) * window.channels;
                    step[k] = window.apart * window.channels;
                }
            }
            int32_t done = 0;
            if (step[0] == 0 && step[1] == 0) {
                done = is_first ? inside : 0; // the borders that are there stay
            } else if (step[0] == 1 && step[1] == 1 && inside >= 4) {
                done = inside & ~3;
                utvm_widen_ones(wide, from[0], from[1], done / 4, 2 * column);
            }
            for (; done < inside; done++) {
                wide[done * column] = from[0][done * step[0]];
                wide[done * column + 1] = from[1][done * step[1]];
            }
        }
    }
}
