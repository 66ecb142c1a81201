const int32_t words = stride % 2 != 0 ? (kernel_columns > 1 ? kernel_columns - 1 : 1)
                                      : (kernel_columns + odd + 1) / 2;
for (int32_t c = 0; c < channels; c++, table += kernel_rows * words + 4) {
    const int16_t *plane = planes + c / multiplier * (plane_bytes / 2) + odd;
    const int32_t *s = table + kernel_rows * words;
    for (int32_t p = 0; p < pixels; p++) {
        uint32_t sum = (uint32_t)s[0];
        for (int32_t r = 0; r < kernel_rows; r++) {
            for (int32_t k = 0; k < kernel_columns; k++) {
                int32_t word = (k + odd) / 2;
                int32_t half = (k + odd) % 2;
                if (stride % 2 != 0) {
                    half = kernel_columns > 1 && k == kernel_columns - 1;
                    word = k - half;
                }
                const uint32_t taps = (uint32_t)table[r * words + word];
                const int32_t weight = (int32_t)(taps << (16 - 16 * half)) >> 16;
                sum += (uint32_t)(plane[r * (row_bytes / 2) + p * stride + k] * weight);
            }
        }
        int32_t value = utvm_scale_doubled((int32_t)sum, s[1], s[2], s[3]);
        output[p * output_pitch + c] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
