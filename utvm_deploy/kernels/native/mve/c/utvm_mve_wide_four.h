const int32_t padded = (depth + 7) / 8 * 8;
for (int32_t o = 0; o < 4; o++) {
    const int8_t *w = weights + o % 2 * 2 * padded + o / 2 * 8;
    totals[o] = 0;
    for (int32_t k = 0; k < depth; k++) {
        totals[o] += vector[k] * w[k / 8 * 16 + k % 8];
    }
}
