for (int32_t c = 0; c < channels; c++) {
    const int8_t *w = weights + c * (ROWS * COLUMNS);
    const int32_t *s = scaling + 4 * c;
    for (int32_t p = 0; p < count; p++) {
        const int8_t *x = rows + p * step + c;
        uint32_t sum = (uint32_t)s[0];
        for (int32_t r = 0; r < ROWS; r++) {
            for (int32_t k = 0; k < COLUMNS; k++) {
                sum += (uint32_t)(x[r * row_pitch + k * column_pitch] * w[r * COLUMNS + k]);
            }
        }
        int32_t value = utvm_scale((int32_t)sum, s[1], s[2], s[3]);
        output[p * channels + c] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
