const int8_t *from = (const int8_t *)quads + 4;
for (int32_t x = 0; x < width; x++) {
    for (int32_t y = 0; y < (row ? 2 : 1); y++) {
        for (int32_t c = 0; c < channels; c++) {
            int32_t value = from[x / COLUMNS * pitch + 4 * c + y * COLUMNS + x % COLUMNS];
            output[y * row + x * channels + c] = (int8_t)utvm_clamp(value, limits[1], limits[2]);
        }
    }
}
