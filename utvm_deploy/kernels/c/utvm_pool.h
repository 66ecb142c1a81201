// Each output pixel of an image, from the positions of its window that lie inside.
static void UTVM_POOL(const int8_t *image, int8_t *output, const int32_t *geometry, int32_t low,
                      int32_t high) {
    const int32_t height = geometry[0], width = geometry[1], channels = geometry[2];
    const int32_t rows = geometry[5], columns = geometry[6];
    int32_t y = -geometry[9];
    for (int32_t oy = 0; oy < geometry[3]; oy++, y += geometry[7]) {
        const int32_t top = y < 0 ? 0 : y;
        const int32_t bottom = y + rows > height ? height : y + rows;
        int32_t x = -geometry[10];
        for (int32_t ox = 0; ox < geometry[4]; ox++, x += geometry[8], output += channels) {
            const int32_t left = x < 0 ? 0 : x;
            const int32_t right = x + columns > width ? width : x + columns;
            UTVM_PIXEL(image + (top * width + left) * channels, output, bottom - top, right - left,
                       width * channels, channels, low, high);
        }
    }
}
