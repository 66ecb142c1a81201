// The sums of rows of weights, for PIXELS pixels, which are `pitch` bytes apart: the weights that
// have a bit are stored, and the highest bit of a word is that of the first of 32.
(void)pitch; // of a single pixel, nothing needs it
for (int32_t o = 0; o < outputs; o++) {
    const int8_t *x = input;
    int32_t sum[PIXELS] = {0};
    for (int32_t w = 0; w < words; w++, x += 32) {
        for (uint32_t left = *bits++; left != 0u; weights++) {
            int32_t at = utvm_leading_zeros(left);
            left ^= UINT32_C(0x80000000) >> at;
            for (int32_t p = 0; p < PIXELS; p++) {
                sum[p] += x[at + p * pitch] * *weights;
            }
        }
    }
    for (int32_t p = 0; p < PIXELS; p++) {
        *sums++ = sum[p];
    }
}
