// An image resized: `rows` and `columns` have, for each of the output's, the one of the input that
// it repeats; a column as bytes. A row that is as the one before it is a copy of it.
static inline void utvm_nearest(const int8_t *image, const int32_t *rows, const int32_t *columns,
                                int8_t *output, int32_t height, int32_t width, int32_t channels,
                                int32_t output_height, int32_t output_width, int32_t batch) {
    const int32_t pitch = output_width * channels;
    for (int32_t n = 0; n < batch; n++, image += height * width * channels) {
        for (int32_t y = 0; y < output_height; y++) {
            if (pitch % 4 == 0 && y > 0 && rows[y] == rows[y - 1]) {
                utvm_move(output, output - pitch, pitch);
                output += pitch;
                continue;
            }
            const int8_t *row = image + rows[y] * width * channels;
            for (int32_t x = 0; x < output_width; x++, output += channels) {
                const int8_t *pixel = row + columns[x];
                int32_t c = 0;
                for (; c + 4 <= channels; c += 4) {
                    utvm_store_word(output + c, utvm_word(pixel + c));
                }
                for (; c < channels; c++) {
                    output[c] = pixel[c];
                }
            }
        }
    }
}
