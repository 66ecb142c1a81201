for (int32_t o = 0; o < outputs; o++) {
    const int8_t *w = weights + o / 4 * 4 * inputs + o % 4 / 2 * 4 + o % 2;
    const int32_t high = -(o % 2);
    uint32_t sum = (uint32_t)bias[o] - (~(uint32_t)high & ((uint32_t)bias[o | 1] << 8));
    for (int32_t k = 0; k < inputs; k++) {
        int32_t byte = w[k / 4 * 16 + k % 2 * 8 + k % 4 / 2 * 2];
        int32_t value = (high & byte) | (~high & ((byte & 255) - 128));
        sum += (uint32_t)(vector[k] * value);
    }
    int32_t value = utvm_scale_wide((int32_t)sum, scaling[0], scaling[1], scaling[2], scaling[3]);
    output[o] = (int8_t)utvm_clamp(value, scaling[4], scaling[5]);
}
