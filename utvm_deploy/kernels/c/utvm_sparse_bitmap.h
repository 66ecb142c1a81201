// The sums of rows of weights, for PIXELS pixels, which are `pitch` bytes apart: the weights that
// have a bit are stored, and the highest bit of a word is that of the first of 32.
(void)pitch; // of a single pixel, nothing needs it
for (int32_t o = 0; o < outputs; o++) {
    const int8_t *x = input;
    int32_t sum[PIXELS] = {0};
    for (int32_t w = 0; w < words; w++, x += 32) {
        int32_t at = 0;
        for (uint32_t left = *bits++; left != 0u; left <<= 1, at++) {
            if (left >> 31 != 0u) {
                for (int32_t p = 0; p < PIXELS; p++) {
                    sum[p] += x[at + p * pitch] * *weights;
                }
                weights++;
            }
        }
    }
    for (int32_t p = 0; p < PIXELS; p++) {
        *sums++ = sum[p];
    }
}
