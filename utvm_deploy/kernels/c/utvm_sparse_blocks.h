// The sums of rows of blocks, for PIXELS pixels, which are `pitch` bytes apart: a block has four
// weights, and is `steps` blocks behind the one before.
for (int32_t o = 0; o < outputs; o++) {
    const int8_t *x = input;
    int32_t sum[PIXELS] = {0};
    for (int32_t left = counts[o]; left > 0; left--, weights += 4) {
        x += 4 * *steps++;
        for (int32_t p = 0, at = 0; p < PIXELS; p++, at += pitch) {
            const int8_t *pixel = x + at;
            sum[p] += pixel[0] * weights[0] + pixel[1] * weights[1];
            sum[p] += pixel[2] * weights[2] + pixel[3] * weights[3];
        }
    }
    for (int32_t p = 0; p < PIXELS; p++) {
        *sums++ = sum[p];
    }
}
