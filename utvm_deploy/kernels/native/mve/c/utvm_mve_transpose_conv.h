// A transposed convolution as ordinary ones, of each row of its blocks one:
// what the windows see is multiplied and put where it belongs. The numbers:
// columns of blocks, their count, how many at a time, depth, whether windows
// are gathered; rows and columns of a block; the first row and column that
// counts; rows, columns and channels of the output; then of each row of a
// block the depth, and the bytes and words of its tables.
static void utvm_mve_transpose_conv_by_PRODUCT(const int8_t *image, const int32_t *geometry,
                                               const int8_t *weights, const int32_t *scaling,
                                               const int32_t *limits, int32_t border,
                                               const int32_t *numbers, int8_t *output,
                                               int8_t *windows, int8_t *tile) {
    const int32_t depth = numbers[3], channels = numbers[11];
    for (int32_t first = 0; first < numbers[1]; first += numbers[2]) {
        const int32_t left = numbers[1] - first;
        const int32_t count = left < numbers[2] ? left : numbers[2];
        const int8_t *seen = image + first * depth;
        if (numbers[4]) {
            utvm_windows_gather(image, windows, first, count, border, geometry);
            seen = windows;
        }
        const int8_t *panel = weights;
        const int32_t *scales = scaling;
        for (int32_t r = 0; r < numbers[5]; r++) {
            const int32_t *row = numbers + 12 + 3 * r;
            // Taps that this row does not have are the first ones.
            PRODUCT(seen + depth - row[0], panel, scales, limits, tile, count,
                    numbers[6] * channels, row[0], depth);
            panel += row[1];
            scales += row[2];
            int32_t y = first / numbers[0] * numbers[5] + r - numbers[7];
            int32_t x = first % numbers[0] * numbers[6] - numbers[8];
            const int8_t *from = tile;
            for (int32_t n = 0; n < count; n++, from += numbers[6] * channels) {
                const int32_t skipped = x < 0 ? -x : 0;
                const int32_t end = numbers[10] - x < numbers[6] ? numbers[10] - x : numbers[6];
                if (y >= 0 && y < numbers[9] && end > skipped) {
                    utvm_bytes_copy(output + (y * numbers[10] + x + skipped) * channels,
                                    from + skipped * channels, (end - skipped) * channels);
                }
                x += numbers[6];
                if (x >= numbers[0] * numbers[6] - numbers[8]) {
                    x = -numbers[8];
                    y += numbers[5];
                }
            }
        }
    }
}
