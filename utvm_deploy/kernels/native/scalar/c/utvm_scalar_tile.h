// All channels of the pixels of a tile.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("no-schedule-insns", "no-tree-reassoc", "no-ivopts")))
#endif
static void TILE(const VALUE *pixels, const int8_t *weights, const int32_t *scaling,
                 const int32_t *limits, VALUE *output, int32_t channels, int32_t depth,
                 int32_t pitch) {
    const int32_t low = limits[0], high = limits[1];
    const int8_t *taps = weights;
    uint32_t x, w0, w1, w2, w3;
    BEGIN
    for (int32_t left = channels; left > 0; left -= 4) {
        int32_t units = depth;
        CLEAR
        do {
            MULTIPLY
            units -= UNIT;
        } while (units != 0);
        const int32_t slots = left;
        FINISH
        scaling += SCALING_WORDS;
        output += 4;
    }
}
