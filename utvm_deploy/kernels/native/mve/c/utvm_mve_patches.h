const int8_t *from = (const int8_t *)columns;
int8_t *to = (int8_t *)quads + 4;
for (int32_t q = 0; q < count; q++, from += step, to += pitch) {
    for (int32_t c = 0; c < channels; c++) {
        for (int32_t i = 0; i < 4; i++) {
            const int8_t *pixels = from + i % COLUMNS * pixel + 4 * c;
            const int8_t *w = weights + 16 * (ROWS * c + i / COLUMNS);
            uint32_t sum = (uint32_t)scaling[3 * c + 3];
            for (int32_t k = 0; k < 16; k++) {
                sum += (uint32_t)(pixels[k / 4 * tap + k % 4] * w[k]);
            }
            int32_t value = utvm_requantize((int32_t)sum, scaling[3 * c + 4], scaling[3 * c + 5]);
            to[4 * c + i] = (int8_t)utvm_clamp(value + limits[0], -128, 127);
        }
    }
}
