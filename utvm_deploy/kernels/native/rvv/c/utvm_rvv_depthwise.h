const int32_t zero_point = limits[0], low = limits[1], high = limits[2];
for (; count > 0; count--, rows += step, output += channels) {
    for (int32_t c = 0; c < channels; c++) {
        uint32_t sum = (uint32_t)scaling[c];
        const int8_t *weight = weights + c;
        for (int32_t r = 0; r < ROWS; r++) {
            for (int32_t k = 0; k < COLUMNS; k++, weight += channels) {
                sum += (uint32_t)(rows[r * row_pitch + k * column_pitch + c] * *weight);
            }
        }
        const int32_t value =
            utvm_requantize((int32_t)sum, scaling[channels + c], -scaling[2 * channels + c]);
        output[c] = (int8_t)utvm_clamp(utvm_add(value, zero_point), low, high);
    }
}
