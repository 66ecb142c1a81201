for (int32_t k = 0; k < padded; k++) {
    wide[k / 4 * 4 + k % 2 * 2 + k % 4 / 2] = (int16_t)(k < inputs ? vector[k] : 0);
}
// Groups of six outputs, then one of all that are left, the last of which may be alone.
const int32_t whole = outputs / 6 * 6, tail = outputs - whole;
for (int32_t o = 0; o < outputs; o++, scaling += scaling_step) {
    const int32_t size = o < whole ? 6 : tail;
    const int32_t place = o < whole ? o % 6 : o - whole;
    const int32_t is_alone = place == size - 1 && size % 2;
    const int8_t *w = weights + (o - place) * padded;
    const int32_t high = -(o % 2 || is_alone);
    uint32_t sum = (uint32_t)bias[o] - (~(uint32_t)high & ((uint32_t)bias[o | 1] << 8));
    for (int32_t i = 0; i < padded; i++) {
        const int32_t lane = i % 2, phase = i % 4 / 2;
        int32_t at = place / 2 * 4 + place % 2 + phase * (size / 2 * 4) + lane * 2;
        if (is_alone) {
            at = size / 2 * 8 + lane * 2 + phase;
        }
        int32_t byte = w[i / 4 * 4 * size + at];
        int32_t value = (high & byte) | (~high & ((byte & 255) - 128));
        sum += (uint32_t)(wide[i] * value);
    }
    int32_t value = utvm_scale_wide((int32_t)sum, scaling[0], scaling[1], scaling[2], scaling[3]);
    output[o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
}
