// The bytes under `count` rows of tiles from row `y` of the image on (it may be negative), with
// borders: columns from `left` before the image on, `columns` of them.
UTVM_ONCE static void utvm_winograd_strip(const int8_t *image, int8_t *to, int32_t y, int32_t rows,
                                          int32_t columns, int32_t border,
                                          const int32_t *geometry) {
    const int32_t height = geometry[0], width = geometry[1], channels = geometry[2];
    const int32_t left = geometry[3] * channels;
    const int32_t most = (columns - geometry[3]) * channels;
    const int32_t inside = most < width * channels ? most : width * channels;
    for (int32_t end = y + rows; y < end; y++) {
        if (y < 0 || y >= height) {
            to = utvm_bytes_fill(to, border, columns * channels);
            continue;
        }
        to = utvm_bytes_fill(to, border, left);
        to = utvm_bytes_copy(to, image + y * width * channels, inside);
        to = utvm_bytes_fill(to, border, most - inside);
    }
}
