// The outputs of four channels from the products of a block of tiles. `rows` and `columns` are
// those of the output from the block's first pixel on.
#if defined(__GNUC__)
__attribute__((noinline))
#endif
static void NAME(const uint32_t *products, const int32_t *scaling, const int32_t *limits,
                 int8_t *output, int32_t rows, int32_t columns, int32_t pitch, int32_t channels,
                 int32_t left, int32_t tiles, int32_t tile_columns) {
    const int32_t low = limits[0], high = limits[1];
    for (int32_t t = 0; t < tiles; t++, products += 4 * POSITIONS) {
        const int32_t y = t / tile_columns * OUTPUTS, x = t % tile_columns * OUTPUTS;
        for (int32_t c = 0; c < 4 && c < left; c++) {
            const int32_t b = scaling[c], m = scaling[4 + c], o = scaling[8 + c];
            const int32_t s = scaling[12 + c];
            uint32_t part[OUTPUTS * INPUTS], sums[OUTPUTS];
            for (int32_t k = 0; k < INPUTS; k++) {
                utvm_axis_OUTPUTS_output(products + 4 * k + c, 4 * INPUTS, part + k, INPUTS);
            }
            int8_t *to = output + y * pitch + x * channels + c;
            for (int32_t n = 0; n < OUTPUTS && y + n < rows; n++, to += pitch) {
                utvm_axis_OUTPUTS_output(part + n * INPUTS, 1, sums, 1);
                for (int32_t k = 0; k < OUTPUTS && x + k < columns; k++) {
                    const uint32_t sum = sums[k] * INVERSE + (uint32_t)b;
                    to[k * channels] = (int8_t)utvm_clamp(SCALED, low, high);
                }
            }
        }
    }
}
