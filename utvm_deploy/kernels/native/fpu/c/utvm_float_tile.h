// The geometry of a convolution.
struct utvm_float_window {
    int32_t height, width, channels, output_width;
    int32_t rows, columns;
    int32_t row_stride, column_stride, row_dilation, column_dilation;
    int32_t top, left;
};

// Copy a run of values to every `lanes`-th place.
static inline float *utvm_float_spread(float *to, const float *from, int32_t count, int32_t lanes) {
    for (; count >= 4; count -= 4, from += 4) {
        const float a = from[0], b = from[1], c = from[2], d = from[3];
        to[0] = a;
        to[lanes] = b;
        to += 2 * lanes;
        to[0] = c;
        to[lanes] = d;
        to += 2 * lanes;
    }
    for (; count > 0; count--, to += lanes) {
        *to = *from++;
    }
    return to;
}

static inline float *utvm_float_skip(float *to, int32_t count, int32_t lanes) {
    for (; count > 0; count--, to += lanes) {
        *to = 0.0f;
    }
    return to;
}

// What the windows of `count` output pixels see, from pixel `pixel` on: [tile][value][lane].
static void utvm_float_tile(const float *image, float *tile, int32_t pixel, int32_t count,
                            int32_t lanes, const int32_t *geometry) {
    struct utvm_float_window w;
    __builtin_memcpy(&w, geometry, sizeof w);
    int32_t oy = pixel / w.output_width;
    int32_t ox = pixel - oy * w.output_width;
    for (int32_t lane = 0; count > 0; count--, lane++) {
        if (lane == lanes) {
            lane = 0;
            tile += lanes * w.rows * w.columns * w.channels;
        }
        float *to = tile + lane;
        const int32_t y = oy * w.row_stride - w.top, x = ox * w.column_stride - w.left;
        for (int32_t ky = 0; ky < w.rows; ky++) {
            const int32_t row = y + ky * w.row_dilation;
            const int32_t start = row * w.width;
            if (row < 0 || row >= w.height) {
                to = utvm_float_skip(to, w.columns * w.channels, lanes);
            } else if (w.column_dilation == 1 && x >= 0 && x + w.columns <= w.width) {
                const float *first = image + (start + x) * w.channels;
                to = utvm_float_spread(to, first, w.columns * w.channels, lanes);
            } else {
                for (int32_t kx = 0; kx < w.columns; kx++) {
                    const int32_t column = x + kx * w.column_dilation;
                    if (column < 0 || column >= w.width) {
                        to = utvm_float_skip(to, w.channels, lanes);
                    } else {
                        const float *at = image + (start + column) * w.channels;
                        to = utvm_float_spread(to, at, w.channels, lanes);
                    }
                }
            }
        }
        if (++ox == w.output_width) {
            ox = 0;
            oy++;
        }
    }
}
