const int32_t taps = kernel_rows * kernel_columns;
for (int32_t c = 0; c < channels; c++) {
    const int32_t *w = table + c / 4 * (2 * taps + 16) + c % 2;
    const int32_t *s = table + c / 4 * (2 * taps + 16) + 2 * taps + c % 4;
    const int32_t left = c % 4 < 2 ? 16 : 0;
    for (int32_t p = 0; p < pixels; p++) {
        uint32_t sum = (uint32_t)s[0];
        for (int32_t t = 0; t < taps; t++) {
            const int8_t *x = rows + t / kernel_columns * row_pitch +
                              t % kernel_columns * column_pitch + p * step + c;
            sum += (uint32_t)(*x * ((int32_t)((uint32_t)w[2 * t] << left) >> 16));
        }
        int32_t value = utvm_scale((int32_t)sum, s[4], s[8], s[12]);
        output[p * channels + c] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
