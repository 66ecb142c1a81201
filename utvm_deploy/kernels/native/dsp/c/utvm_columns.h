for (int32_t o = 0; o < channels; o++) {
    const int8_t *w = weights + (o / 2) * 2 * depth + o % 2;
    const int32_t *s = scaling + (o / 2) * 8 + o % 2;
    for (int32_t p = 0; p < rows * pixels; p++) {
        const int16_t *x = columns + (p / pixels) * (row_bytes / 2) + (p % pixels) * (pitch / 2);
        uint32_t sum = (uint32_t)s[0];
        for (int32_t k = 0; k < depth / 2; k++) {
            sum += (uint32_t)(x[2 * k] * w[4 * k] + x[2 * k + 1] * w[4 * k + 2]);
        }
        int32_t value = utvm_scale((int32_t)sum, s[2], s[4], s[6]);
        output[p * channels + o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
