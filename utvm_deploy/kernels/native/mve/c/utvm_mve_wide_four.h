const int32_t padded = (depth + 7) / 8 * 8;
for (int32_t o = 0; o < 4; o++) {
    // Of odd outputs, blocks lie in reverse.
    const int32_t turn = o % 2 ? -16 : 16, first = o / 2 * 8;
    const int8_t *w = weights + (o % 2 ? 4 * padded - 8 - first : first);
    totals[o] = 0;
    for (int32_t k = 0; k < depth; k++) {
        totals[o] += vector[k] * w[k / 8 * turn + k % 8];
    }
}
