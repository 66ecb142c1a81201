// The geometry of a convolution.
struct utvm_window {
    int32_t height, width, channels, output_width;
    int32_t rows, columns;
    int32_t row_stride, column_stride, row_dilation, column_dilation;
    int32_t top, left;
};

// `quads` times four bytes of the border.
static inline void utvm_widen_border(int16_t *patches, int32_t border, int32_t quads) {
    for (int32_t q = 0; q < quads; q++) {
        patches[12 * q] = (int16_t)border;
        patches[12 * q + 1] = (int16_t)border;
        patches[12 * q + 6] = (int16_t)border;
        patches[12 * q + 7] = (int16_t)border;
    }
}

static inline int8_t *utvm_copy_bytes(int8_t *to, const int8_t *from, int32_t count) {
    for (; count >= 4; count -= 4) {
        __builtin_memcpy(to, from, 4);
        to += 4;
        from += 4;
    }
    for (; count > 0; count--) {
        *to++ = *from++;
    }
    return to;
}

static inline int8_t *utvm_fill_bytes(int8_t *to, int32_t border, int32_t count) {
    const uint32_t word = (uint32_t)(uint8_t)border * 0x01010101u;
    for (; count >= 4; count -= 4) {
        __builtin_memcpy(to, &word, 4);
        to += 4;
    }
    for (; count > 0; count--) {
        *to++ = (int8_t)border;
    }
    return to;
}

// Columns of a row of the kernel, from which on (inclusive) and to which (exclusive) they lie in
// the image.
static inline void utvm_inside(const struct utvm_window *w, int32_t x, int32_t *from, int32_t *to) {
    int32_t first = 0, last = w->columns;
    if (w->column_dilation == 1) {
        first = x < 0 ? -x : 0;
        last = x + last > w->width ? w->width - x : last;
        first = first > w->columns ? w->columns : first;
        last = last < first ? first : last;
    }
    *from = first;
    *to = last;
}

// The window at (y, x) where part of it lies outside the image, or its columns lie apart.
static void utvm_gather_border(const int8_t *image, int16_t *wide, int8_t *bytes, int32_t y,
                               int32_t x, int32_t border, const struct utvm_window *w) {
    const int32_t channels = w->channels;
    const int32_t pitch = w->width * channels;
    const int32_t is_whole = channels % 4 == 0;
    int32_t from, to;
    utvm_inside(w, x, &from, &to);
    for (int32_t ky = 0; ky < w->rows; ky++, y += w->row_dilation) {
        const int8_t *row = image + y * pitch + x * channels;
        const int32_t is_outside = y < 0 || y >= w->height;
        if (w->column_dilation == 1) {
            const int32_t first = is_outside ? w->columns * channels : from * channels;
            const int32_t inside = is_outside ? 0 : (to - from) * channels;
            const int32_t rest = w->columns * channels - first - inside;
            if (is_whole) {
                utvm_widen_border(wide, border, first / 4);
                if (inside > 0) {
                    utvm_widen(wide + first * 3, row + first, inside / 4, 1, 0);
                }
                utvm_widen_border(wide + (first + inside) * 3, border, rest / 4);
                wide += w->columns * channels * 3;
            } else {
                bytes = utvm_fill_bytes(bytes, border, first);
                bytes = utvm_copy_bytes(bytes, row + first, inside);
                bytes = utvm_fill_bytes(bytes, border, rest);
            }
            continue;
        }
        for (int32_t kx = 0, column = x; kx < w->columns; kx++, column += w->column_dilation) {
            const int32_t is_border = is_outside || column < 0 || column >= w->width;
            const int8_t *from_here = row + kx * w->column_dilation * channels;
            if (is_whole && is_border) {
                utvm_widen_border(wide, border, channels / 4);
            } else if (is_whole) {
                utvm_widen(wide, from_here, channels / 4, 1, 0);
            } else if (is_border) {
                bytes = utvm_fill_bytes(bytes, border, channels);
            } else {
                bytes = utvm_copy_bytes(bytes, from_here, channels);
            }
            wide += channels * 3;
        }
    }
}

// What the windows of `count` output pixels see, from pixel `pixel` on. Where the channels are no
// multiple of four, the bytes of one window are lined up behind the patches and their slack.
UTVM_ONCE static void utvm_gather(const int8_t *image, int16_t *patches, int32_t pixel,
                                  int32_t count, int32_t border, const int32_t *geometry) {
    struct utvm_window window;
    __builtin_memcpy(&window, geometry, sizeof window);
    const struct utvm_window *const w = &window;
    const int32_t channels = window.channels;
    const int32_t run = window.columns * channels;
    const int32_t pitch = window.width * channels;
    const int32_t row_step = window.row_dilation * pitch;
    const int32_t depth = (window.rows * run + 7) / 8 * 8;
    const int32_t is_whole = channels % 4 == 0;
    const int8_t *const end = image + window.height * pitch;
    // Windows from row and column 0 to these lie inside.
    const int32_t last_y = window.height - 1 - (window.rows - 1) * window.row_dilation;
    const int32_t last_x = window.column_dilation == 1 ? window.width - window.columns : -1;
    int8_t *const line = (int8_t *)(patches + (count + 2) / 3 * 3 * depth + 8);
    const int32_t oy = pixel / window.output_width;
    int32_t left = window.output_width - (pixel - oy * window.output_width);
    int32_t y = oy * window.row_stride - window.top;
    int32_t x = (window.output_width - left) * window.column_stride - window.left;
    for (int32_t lane = 0; count > 0; count--) {
        int16_t *wide = patches + 2 * lane;
        int32_t is_done = is_whole;
        if (y < 0 || y > last_y || x < 0 || x > last_x) {
            utvm_gather_border(image, wide, line, y, x, border, w);
        } else if (is_whole) {
            utvm_widen(wide, image + y * pitch + x * channels, run / 4, window.rows, row_step);
        } else {
            const int8_t *row = image + y * pitch + x * channels;
            if (row + (window.rows - 1) * row_step + run + 3 <= end) {
                utvm_widen_line(wide, row, line, depth / 4, window.rows, row_step, run);
                is_done = 1;
            } else {
                int8_t *bytes = line;
                for (int32_t ky = 0; ky < window.rows; ky++, row += row_step) {
                    bytes = utvm_copy_bytes(bytes, row, run);
                }
            }
        }
        if (!is_done) {
            utvm_widen(wide, line, depth / 4, 1, 0);
        }
        if (++lane == 3) {
            lane = 0;
            patches += 3 * depth;
        }
        x += window.column_stride;
        if (--left == 0) {
            left = window.output_width;
            x = -window.left;
            y += window.row_stride;
        }
    }
}
