#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("no-schedule-insns", "no-tree-reassoc")))
#endif
static void DEPTHWISE(const int8_t *rows, const int8_t *weights, const int32_t *scaling,
                      const int32_t *limits, int8_t *output, int32_t row_pitch,
                      int32_t column_pitch, int32_t step, int32_t count, int32_t channels,
                      int32_t times, int32_t apart) {
    const int32_t low = limits[0], high = limits[1];
    const int8_t *w = weights;
    for (int32_t c = 0; c < channels; c++, w += TAPS, scaling += 4) {
        const uint32_t bias = (uint32_t)scaling[0];
        const int32_t m = scaling[1], o = scaling[2], s = scaling[3];
        int32_t v, WEIGHTS;
        LOADS
        const int8_t *first = rows + c;
        int8_t *to = output + c;
        for (int32_t y = times; y > 0; y--, first += apart) {
            const int8_t *x = first;
            int32_t left = count;
            for (; left >= PIXELS; left -= PIXELS, x += PIXELS * step, to += PIXELS * channels) {
                TILE
            }
            for (; left > 0; left--, x += step, to += channels) {
                ALONE
            }
        }
    }
}
