const int32_t padded = (depth + 15) / 16 * 16;
for (int32_t o = 0; o < channels; o++) {
    // Of odd channels, blocks lie in reverse.
    const int32_t turn = o % 2 ? -32 : 32, first = o % 4 / 2 * 16;
    const int8_t *w = weights + o / 4 * 4 * padded + (o % 2 ? 4 * padded - 16 - first : first);
    const int32_t *s = scaling + o / 4 * QUAD_WORDS + o % 4;
    const int32_t bias = scaling[o / 4 * QUAD_WORDS + o % 2 * 2 + o % 4 / 2];
    for (int32_t p = 0; p < count; p++) {
        uint32_t sum = (uint32_t)bias;
        for (int32_t k = 0; k < depth; k++) {
            sum += (uint32_t)(pixels[p * pitch + k] * w[k / 16 * turn + k % 16]);
        }
        int32_t value = utvm_requantize((int32_t)sum, s[4], s[8] + LEFT_SHIFT) + limits[0];
        output[p * channels + o] = (int8_t)utvm_clamp(value, limits[1], limits[2]);
    }
}
