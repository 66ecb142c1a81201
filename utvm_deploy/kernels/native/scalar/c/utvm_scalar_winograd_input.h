// V of a block of tiles. Its pixels are copied to `work` with their border, and channels filled up
// to fours. A word of V has two channels; 2^15 in the lower half keeps the upper one as it is.
#if defined(__GNUC__)
__attribute__((noinline))
#endif
static void NAME(const int8_t *image, uint32_t *work, uint32_t *v, int32_t y, int32_t x,
                 int32_t height, int32_t width, int32_t channels, int32_t tile_columns,
                 int32_t border) {
    const int32_t quads = (channels + 3) / 4, rows = OUTPUTS * (TILES / tile_columns) + 2;
    const int32_t columns = OUTPUTS * tile_columns + 2, pitch = columns * quads;
    utvm_rows_copy(image, (int8_t *)work, y, x, height, width, channels, 1, 4 * quads, rows, 1,
                   columns, border);
    for (int32_t t = 0; t < TILES; t++) {
        const int32_t row = t / tile_columns, column = t - row * tile_columns;
        const uint32_t *from = work + OUTPUTS * (row * pitch + column * quads);
        uint32_t *to = v + t;
        for (int32_t q = 0; q < quads; q++, from++, to += 2 * POSITIONS * TILES) {
            uint32_t part[2 * INPUTS * INPUTS];
            for (int32_t k = 0; k < INPUTS; k++) {
                uint32_t low[INPUTS], high[INPUTS];
                for (int32_t n = 0; n < INPUTS; n++) {
                    const uint32_t word = from[n * pitch + k * quads] ^ 0x80808080u;
                    low[n] = word & 0x00ff00ffu;
                    high[n] = (word >> 8) & 0x00ff00ffu;
                }
                utvm_axis_OUTPUTS_input(low, part + k, INPUTS, 0u);
                utvm_axis_OUTPUTS_input(high, part + INPUTS * INPUTS + k, INPUTS, 0u);
            }
            for (int32_t n = 0; n < 2 * INPUTS; n++) {
                utvm_axis_OUTPUTS_input(part + n * INPUTS, to + n * INPUTS * TILES, TILES, 0x8000u);
            }
        }
    }
}
