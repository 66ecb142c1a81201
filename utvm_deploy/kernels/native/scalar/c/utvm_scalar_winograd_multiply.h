// The products of four channels with the tiles of a block, position after position.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("no-schedule-insns", "no-tree-reassoc", "no-ivopts")))
#endif
static void NAME(const uint32_t *v, const int16_t *u, const int32_t *start, uint32_t *products,
                 int32_t quads) {
    const int16_t *taps = u;
    uint32_t x, w0, w1, w2, w3;
    for (int32_t p = 0; p < POSITIONS; p++, v += TILES, start += 4, products += 4) {
        const uint32_t *at = v;
        int32_t left = quads;
        BEGIN
        do {
            MULTIPLY
        } while (--left != 0);
        END
    }
}
