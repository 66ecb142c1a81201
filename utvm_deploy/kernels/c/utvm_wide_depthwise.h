// How many of a window's taps lie before the image, and how many do not lie
// behind it.
static inline int32_t utvm_taps_before(int32_t at, int32_t apart) {
    return at < 0 ? (apart - 1 - at) / apart : 0;
}

static inline int32_t utvm_taps_until(int32_t at, int32_t taps, int32_t apart, int32_t size) {
    if (at + (taps - 1) * apart < size) {
        return taps;
    }
    return at < size ? (size - at + apart - 1) / apart : 0;
}

// Each output pixel of a depthwise convolution from the taps that see the image:
// outside it is zero. The geometry: batch, rows, columns and channels of the
// image; rows and columns of the output, of the window, of its strides, of its
// dilations; its first row and column, negated.
static inline void utvm_wide_depthwise_by_PIXEL(const int16_t *image, const int32_t *geometry,
                                                const int8_t *weights, const int32_t *scaling,
                                                int32_t low, int32_t high, int16_t *output) {
    const int32_t height = geometry[1], width = geometry[2], channels = geometry[3];
    const int32_t taps_down = geometry[6], taps_right = geometry[7];
    const int32_t down = geometry[10], right = geometry[11];
    // Rows and columns of taps; bytes from column to column, and from a row's end to the next
    // row, in the image and in the weights; bytes of a group's weights; channels, limits.
    int32_t walk[9] = {0,        0,   0,   right * channels * 2, 0, taps_down * taps_right * LANES,
                       channels, low, high};
    for (int32_t n = 0; n < geometry[0]; n++, image += height * width * channels) {
        for (int32_t oy = 0; oy < geometry[4]; oy++) {
            const int32_t y = oy * geometry[8] - geometry[12];
            const int32_t top = utvm_taps_before(y, down);
            const int32_t rows = utvm_taps_until(y, taps_down, down, height) - top;
            for (int32_t ox = 0; ox < geometry[5]; ox++, output += channels) {
                const int32_t x = ox * geometry[9] - geometry[13];
                const int32_t left = utvm_taps_before(x, right);
                const int32_t columns = utvm_taps_until(x, taps_right, right, width) - left;
                const int16_t *first = image;
                const int8_t *panel = weights;
                walk[0] = 0;
                if (rows > 0 && columns > 0) {
                    walk[0] = rows;
                    walk[1] = columns;
                    walk[2] = (down * width - columns * right) * channels * 2;
                    walk[4] = (taps_right - columns) * LANES;
                    first += ((y + top * down) * width + x + left * right) * channels;
                    panel += (top * taps_right + left) * LANES;
                }
                PIXEL(first, panel, scaling, output, walk);
            }
        }
    }
}
