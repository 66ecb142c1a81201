// Rows of pixels, one after the other, to where pixels and rows lie so many bytes apart.
static void utvm_put_pixels(int8_t *to, const int8_t *from, int32_t rows, int32_t pixels,
                            int32_t channels, int32_t pixel_step, int32_t row_step) {
    for (int32_t r = 0; r < rows; r++, to += row_step) {
        int8_t *pixel = to;
        for (int32_t p = 0; p < pixels; p++, pixel += pixel_step, from += channels) {
            int32_t c = 0;
            for (; c + 4 <= channels; c += 4) {
                __builtin_memcpy(pixel + c, from + c, 4);
            }
            for (; c < channels; c++) {
                pixel[c] = from[c];
            }
        }
    }
}
