static void TILE(const int8_t *pixels, const int8_t *weights, const int32_t *scaling,
                 const int32_t *limits, int8_t *output, int32_t channels, int32_t depth,
                 int32_t pitch) {
    const int32_t low = limits[0], high = limits[1];
    POINTERS
    for (int32_t left = channels; left > 0; left -= 4) {
        const int32_t slots = left < 4 ? left : 4;
        int32_t sums[PIXELS][4];
#if defined(__wasm_simd128__)
        VECTORS
        for (int32_t k = 0; k < depth; k += 8) {
            LOADS
            PRODUCTS
            weights += 32;
        }
        const v128_t bias = wasm_v128_load(scaling);
        STORES
#else
        for (int32_t p = 0; p < PIXELS; p++) {
            for (int32_t c = 0; c < 4; c++) {
                sums[p][c] = scaling[c];
            }
        }
        for (int32_t k = 0; k < depth; k += 8) {
            for (int32_t c = 0; c < 4; c++) {
                for (int32_t i = 0; i < 8; i++) {
                    const int32_t w = weights[8 * c + i];
                    ADDITIONS
                }
            }
            weights += 32;
        }
#endif
        FINISH
        output += slots;
        scaling += WORDS;
    }
    (void)pitch;
}
