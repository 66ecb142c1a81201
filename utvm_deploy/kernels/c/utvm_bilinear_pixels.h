// As utvm_bilinear, of pixels that serve more than one output. Each of two pixels in `held` is one
// of a row and one of the next row, blended. Channels are at least four; those that are left after
// fours are the last ones of four.
static inline void utvm_weigh_held(const int8_t *upper, const int8_t *lower, int32_t share,
                                   int32_t *pixel, int32_t channels) {
    const int32_t last = channels - 4;
    utvm_weigh_rows(upper, lower, share, pixel, channels / 4);
    if (channels % 4 != 0) {
        utvm_weigh_rows(upper + last, lower + last, share, pixel + last, 1);
    }
}

static inline void utvm_bilinear_pixels(const int8_t *image, const int32_t *rows,
                                        const int32_t *columns, int8_t *output, int32_t *held,
                                        int32_t height, int32_t width, int32_t channels,
                                        int32_t output_height, int32_t output_width,
                                        int32_t batch) {
    const int32_t pitch = width * channels, last = channels - 4;
    for (int32_t n = 0; n < batch; n++, image += height * pitch) {
        for (int32_t y = 0; y < output_height; y++) {
            const int32_t *row = rows + 3 * y;
            const int8_t *upper = image + row[0] * pitch, *lower = image + row[1] * pitch;
            int32_t *left = held, *right = held + channels;
            int32_t of_left = -1, of_right = -1; // their columns
            for (int32_t x = 0; x < output_width; x++, output += channels) {
                const int32_t *column = columns + 3 * x;
                if (column[0] != of_left) {
                    int32_t *other = left;
                    left = right;
                    right = other;
                    of_left = of_right;
                    of_right = -1;
                }
                if (column[0] != of_left) {
                    of_left = column[0];
                    const int32_t start = of_left * channels;
                    utvm_weigh_held(upper + start, lower + start, row[2], left, channels);
                }
                if (column[1] != of_right) {
                    of_right = column[1];
                    const int32_t start = of_right * channels;
                    utvm_weigh_held(upper + start, lower + start, row[2], right, channels);
                }
                utvm_weigh_columns(left, right, column[2], output, channels / 4);
                if (channels % 4 != 0) {
                    utvm_weigh_columns(left + last, right + last, column[2], output + last, 1);
                }
            }
        }
    }
}
