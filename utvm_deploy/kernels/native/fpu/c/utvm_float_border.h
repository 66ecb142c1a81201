// Copy `rows` rows of an image from row `first` on, which may be outside it, with a border of
// zeros. The geometry is height, width, columns of the copy, columns left of the image, channels.
static void utvm_float_border(const float *image, float *to, int32_t first, int32_t rows,
                              const int32_t *geometry) {
    const int32_t channels = geometry[4], pitch = geometry[2] * channels;
    for (int32_t y = first; y < first + rows; y++, to += pitch) {
        utvm_float_row(image, to, y, geometry[0], geometry[1], geometry[3], channels, pitch);
    }
}
