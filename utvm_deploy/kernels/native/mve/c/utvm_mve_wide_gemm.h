const int32_t padded = (depth + 7) / 8 * 8;
for (int32_t o = 0; o < channels; o++) {
    // Of odd channels, blocks lie in reverse.
    const int32_t turn = o % 2 ? -16 : 16, first = o % 4 / 2 * 8;
    const int8_t *w = weights + o / 4 * 4 * padded + (o % 2 ? 4 * padded - 8 - first : first);
    const int32_t *s = scaling + o / 4 * 12 + o % 4;
    const int32_t bias = scaling[o / 4 * 12 + o % 2 * 2 + o % 4 / 2];
    for (int32_t p = 0; p < count; p++) {
        uint32_t sum = (uint32_t)bias;
        for (int32_t k = 0; k < depth; k++) {
            sum += (uint32_t)(pixels[p * pitch + k] * w[k / 8 * turn + k % 8]);
        }
        int64_t product = (int64_t)(int32_t)sum * s[4];
        int32_t value = ((int32_t)(product >> 32) + (1 << (-s[8] - 1))) >> -s[8];
        output[p * channels + o] = (int16_t)utvm_clamp(value, limits[1], limits[2]);
    }
}
