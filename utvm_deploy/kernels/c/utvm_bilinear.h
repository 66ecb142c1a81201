// An image resized: `rows` and `columns` have, for each of the output's, both
// neighbours and the second one's share in 1/1024.
static inline void utvm_bilinear(const int8_t *image, const int32_t *rows, const int32_t *columns,
                                 int8_t *output, int32_t height, int32_t width, int32_t channels,
                                 int32_t output_height, int32_t output_width, int32_t batch) {
    for (int32_t n = 0; n < batch; n++, image += height * width * channels) {
        for (int32_t y = 0; y < output_height; y++) {
            const int32_t *row = rows + 3 * y;
            const int8_t *upper = image + row[0] * width * channels;
            const int8_t *lower = image + row[1] * width * channels;
            for (int32_t x = 0; x < output_width; x++, output += channels) {
                const int32_t *column = columns + 3 * x;
                const int32_t left = column[0] * channels;
                const int32_t right = column[1] * channels;
                const int32_t both = row[2] * column[2];
                const int32_t weights[4] = {(1024 - row[2]) * (1024 - column[2]),
                                            1024 * row[2] - both, 1024 * column[2] - both, both};
                utvm_blend(upper + left, lower + left, upper + right, lower + right, weights,
                           output, channels);
            }
        }
    }
}
