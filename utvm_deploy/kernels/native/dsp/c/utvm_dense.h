for (int32_t k = 0; k < padded; k++) {
    wide[k / 4 * 4 + k % 2 * 2 + k % 4 / 2] = (int16_t)(k < inputs ? vector[k] : 0);
}
for (int32_t o = 0; o < outputs; o++, scaling += scaling_step) {
    // Groups of six outputs, then of two.
    const int32_t size = o < outputs / 6 * 6 ? 6 : 2;
    const int32_t place = size == 6 ? o % 6 : o % 2;
    const int8_t *w = weights + (o - place) * padded + place / 2 * 4 + place % 2;
    const int32_t high = -(o % 2);
    uint32_t sum = (uint32_t)bias[o] - (~(uint32_t)high & ((uint32_t)bias[o | 1] << 8));
    for (int32_t i = 0; i < padded; i++) {
        int32_t byte = w[i / 2 * 2 * size + i % 2 * 2];
        int32_t value = (high & byte) | (~high & ((byte & 255) - 128));
        sum += (uint32_t)(wide[i] * value);
    }
    int32_t value = utvm_scale_wide((int32_t)sum, scaling[0], scaling[1], scaling[2], scaling[3]);
    output[o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
}
