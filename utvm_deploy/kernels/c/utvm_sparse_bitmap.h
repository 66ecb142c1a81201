// The sums of rows of weights, for PIXELS pixels, which are `pitch` bytes apart: the weights that
// have a bit are stored, and the highest bit of a word is that of the first of 32.
for (int32_t o = 0; o < outputs; o++) {
    const int8_t *x = input;
    int32_t sum[PIXELS] = {0};
    for (int32_t w = 0; w < words; w++, x += 32) {
        const int8_t *next = x;
        for (uint32_t left = *bits++; left != 0u; left <<= 1, next++) {
            if (left >> 31 != 0u) {
                for (int32_t p = 0, at = 0; p < PIXELS; p++, at += pitch) {
                    sum[p] += next[at] * *weights;
                }
                weights++;
            }
        }
    }
    for (int32_t p = 0; p < PIXELS; p++) {
        *sums++ = sum[p];
    }
}
