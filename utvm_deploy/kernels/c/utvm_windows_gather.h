// Neighbouring windows that lie inside the image: `rows` rows of `run` bytes each, `step` bytes
// apart. A function of its own: together with what borders need it would not fit the registers.
#if defined(__GNUC__)
__attribute__((noinline))
#endif
static void utvm_windows_inside(const int8_t *first, int8_t *windows, int32_t count, int32_t run,
                                const struct utvm_windows *w) {
    const int32_t apart = w->column_stride * w->channels, pitch = w->pitch, rows = w->rows;
    const int32_t step = w->row_dilation * w->width * w->channels;
    for (; count > 0; count--, first += apart, windows += pitch) {
        const int8_t *row = first;
        int8_t *to = windows;
        for (int32_t ky = rows; ky > 0; ky--, row += step) {
            to = utvm_bytes_copy(to, row, run);
        }
    }
}

// What the windows of `count` output pixels see, from pixel `pixel` on, one behind the other.
static void utvm_windows_gather(const int8_t *image, int8_t *windows, int32_t pixel, int32_t count,
                                int32_t border, const int32_t *geometry) {
    struct utvm_windows window;
    __builtin_memcpy(&window, geometry, sizeof window);
    const struct utvm_windows *const w = &window;
    const int32_t pitch = window.width * window.channels;
    const int32_t run = window.columns * window.channels;
    // Windows from row and column 0 to these lie inside.
    const int32_t last_y = window.height - 1 - (window.rows - 1) * window.row_dilation;
    const int32_t last_x = window.column_dilation == 1 ? window.width - window.columns : -1;
    const int32_t oy = pixel / window.output_width;
    int32_t left = window.output_width - (pixel - oy * window.output_width);
    int32_t y = oy * window.row_stride - window.top;
    int32_t x = (window.output_width - left) * window.column_stride - window.left;
    while (count > 0) {
        int32_t done = 1;
        if (y >= 0 && y <= last_y && x >= 0 && x <= last_x) {
            // As many as there are to the right.
            done = (last_x - x) / window.column_stride + 1;
            done = done < left ? done : left;
            done = done < count ? done : count;
            utvm_windows_inside(image + y * pitch + x * window.channels, windows, done, run, w);
        } else {
            int8_t *to = windows;
            for (int32_t ky = 0; ky < window.rows; ky++) {
                const int32_t at = y + ky * window.row_dilation;
                const int8_t *row = at < 0 || at >= window.height ? 0 : image + at * pitch;
                to = utvm_windows_row(to, row, x, border, w);
            }
        }
        windows += done * window.pitch;
        count -= done;
        x += done * window.column_stride;
        left -= done;
        if (left == 0) {
            left = window.output_width;
            x = -window.left;
            y += window.row_stride;
        }
    }
}
