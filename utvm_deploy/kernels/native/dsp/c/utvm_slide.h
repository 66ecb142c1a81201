// The geometry of a depthwise convolution over planes.
struct utvm_planes_window {
    int32_t height, width, channels; // of the image
    int32_t columns;                 // of the image that windows see
    int32_t rows, stride, top;
    int32_t front; // columns of a plane before the image
    int32_t pitch; // of a plane's rows
    int32_t ring;  // rows of a plane
    int32_t period;
};

static void utvm_fill_halves(int16_t *to, int32_t value, int32_t words) {
    const uint32_t word = (uint32_t)(value & 0xffff) * 0x10001u;
    for (; words >= 4; words -= 4, to += 8) {
        __builtin_memcpy(to, &word, 4);
        __builtin_memcpy(to + 2, &word, 4);
        __builtin_memcpy(to + 4, &word, 4);
        __builtin_memcpy(to + 6, &word, 4);
    }
    for (; words > 0; words--, to += 2) {
        __builtin_memcpy(to, &word, 4);
    }
}

static void utvm_plane_bytes(const int8_t *from, int16_t *to, int32_t channels, int32_t border,
                             const struct utvm_planes_window *w) {
    const int32_t plane = w->ring * w->pitch;
    if (channels >= 4) {
        utvm_widen_planes(from, to, w->columns, channels / 4, w->channels, 2 * plane, border);
        if (channels % 4 != 0) {
            // The last four once more.
            utvm_widen_planes(from + channels - 4, to + (channels - 4) * plane, w->columns, 1,
                              w->channels, 2 * plane, border);
        }
        return;
    }
    for (int32_t c = 0; c < channels; c++, to += plane) {
        for (int32_t x = 0; x < w->columns; x++) {
            to[x] = from[x * w->channels + c];
        }
    }
}

// The rows under the windows of output row `y`, for some channels: rows that stay move to the front
// of the ring when its end is reached.
UTVM_ONCE static void utvm_slide(const int8_t *image, int16_t *planes, int32_t y, int32_t channels,
                                 int32_t border, const int32_t *geometry) {
    struct utvm_planes_window window;
    __builtin_memcpy(&window, geometry, sizeof window);
    const struct utvm_planes_window *const w = &window;
    const int32_t plane = window.ring * window.pitch;
    const int32_t base = y % window.period * window.stride;
    int32_t kept = window.rows > window.stride ? window.rows - window.stride : 0;
    if (y == 0) {
        utvm_fill_halves(planes, border, channels * plane / 2);
        kept = 0;
    } else if (base == 0) {
        utvm_move_rows(planes, channels, kept * window.pitch / 2,
                       window.period * window.stride * window.pitch * 2, 2 * plane);
    }
    for (int32_t r = kept; r < window.rows; r++) {
        const int32_t row = y * window.stride - window.top + r;
        int16_t *to = planes + (base + r) * window.pitch + window.front;
        if (row >= 0 && row < window.height) {
            const int8_t *from = image + row * window.width * window.channels;
            utvm_plane_bytes(from, to, channels, border, w);
        } else if (y != 0) {
            for (int32_t c = 0; c < channels; c++) {
                utvm_fill_halves(to + c * plane, border, (window.columns + 1) / 2);
            }
        }
    }
}
