const int32_t channels = 4 * quads;
for (int32_t k = 0; k < 2 * quads; k++, weights += 9) {
    for (int32_t n = 0; n < 4; n++) {
        // 2 G from both sides: a row has the factors 2 0 0, 1 1 1, 1 -1 1, 0 0 2.
        const int8_t *const taps = (const int8_t *)weights + n;
        int16_t g[3][4];
        for (int32_t x = 0; x < 3; x++) {
            const int32_t a = taps[4 * x], b = taps[4 * x + 12], c = taps[4 * x + 24];
            g[x][0] = (int16_t)(2 * a);
            g[x][1] = (int16_t)(a + b + c);
            g[x][2] = (int16_t)(a - b + c);
            g[x][3] = (int16_t)(2 * c);
        }
        for (int32_t y = 0; y < 4; y++) {
            const int32_t a = g[0][y], b = g[1][y], c = g[2][y];
            const int16_t found[4] = {(int16_t)(2 * a), (int16_t)(a + b + c), (int16_t)(a - b + c),
                                      (int16_t)(2 * c)};
            for (int32_t x = 0; x < 4; x++) {
                int32_t *const to = u + (4 * y + x) * channels + 2 * k + n % 2;
                __builtin_memcpy((int16_t *)to + n / 2, &found[x], 2);
            }
        }
    }
}
