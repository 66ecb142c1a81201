const int32_t padded = (inputs + 15) / 16 * 16;
for (int32_t o = 0; o < outputs; o++) {
    // Of odd outputs, blocks lie in reverse.
    const int32_t turn = o % 2 ? -32 : 32, first = o % 4 / 2 * 16;
    const int8_t *w = weights + o / 4 * 4 * padded + (o % 2 ? 4 * padded - 16 - first : first);
    const int32_t *b = bias + o / 4 * (4 * ROWS) + o % 2 * 2 + o % 4 / 2;
    uint32_t sum = (uint32_t)b[0];
    for (int32_t k = 0; k < inputs; k++) {
        sum += (uint32_t)(vector[k] * w[k / 16 * turn + k % 16]);
    }
    int32_t value = utvm_scale_wide((int32_t)sum, SCALING);
    output[o] = (int8_t)utvm_clamp(value, scaling[4], scaling[5]);
}
