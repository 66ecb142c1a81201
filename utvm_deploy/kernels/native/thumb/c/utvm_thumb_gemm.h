for (int32_t o = 0; o < channels; o++) {
    const int8_t *w = weights + o / SLOTS * SLOTS * depth + o % SLOTS;
    const int32_t *s = scaling + o / SLOTS * (ROWS * SLOTS) + o % SLOTS;
    for (int32_t p = 0; p < count; p++) {
        const int8_t *x = pixels + p * pitch;
        uint32_t sum = (uint32_t)s[0];
        for (int32_t k = 0; k < depth; k++) {
            sum += (uint32_t)(x[k] * w[SLOTS * k]);
        }
        int32_t value = SCALED;
        output[p * channels + o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
