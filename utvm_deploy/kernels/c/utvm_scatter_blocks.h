// Pixels whose channels are blocks of output pixels, put where they belong.
// numbers: columns of blocks, their count, how many at a time, channels of one,
// depth; rows and columns of a block; the first row and column that counts;
// rows, columns and channels of the output.
static void utvm_scatter_blocks(const int8_t *tile, const int32_t *numbers, int32_t first,
                                int32_t count, int8_t *output) {
    const int32_t channels = numbers[11];
    const int32_t run = numbers[6] * channels;
    int32_t row = first / numbers[0];
    int32_t column = first % numbers[0];
    for (int32_t n = 0; n < count; n++) {
        const int32_t x = column * numbers[6] - numbers[8];
        const int32_t left = x < 0 ? -x : 0;
        const int32_t right = numbers[10] - x < numbers[6] ? numbers[10] - x : numbers[6];
        for (int32_t r = 0; r < numbers[5]; r++, tile += run) {
            const int32_t y = row * numbers[5] + r - numbers[7];
            if (y >= 0 && y < numbers[9] && right > left) {
                utvm_bytes_copy(output + (y * numbers[10] + x + left) * channels,
                                tile + left * channels, (right - left) * channels);
            }
        }
        column++;
        if (column == numbers[0]) {
            column = 0;
            row++;
        }
    }
}
