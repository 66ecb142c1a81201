// The sums of rows of single weights, for PIXELS pixels, which are `pitch` bytes apart: each weight
// is `steps` inputs behind the one before.
for (int32_t o = 0; o < outputs; o++) {
    const int8_t *x = input;
    int32_t sum[PIXELS] = {0};
    for (int32_t left = counts[o]; left > 0; left--, weights++) {
        x += *steps++;
        for (int32_t p = 0, at = 0; p < PIXELS; p++, at += pitch) {
            sum[p] += x[at] * *weights;
        }
    }
    for (int32_t p = 0; p < PIXELS; p++) {
        *sums++ = sum[p];
    }
}
