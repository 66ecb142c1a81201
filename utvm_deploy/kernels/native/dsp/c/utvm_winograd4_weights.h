for (int32_t k = 0; k < 2 * quads; k++, weights += 9) {
    for (int32_t n = 0; n < 4; n++) {
        static const int8_t g[6][3] = {{1, 0, 0}, {1, 1, 1},  {1, -1, 1},
                                       {1, 2, 4}, {1, -2, 4}, {0, 0, 1}};
        const int8_t *const taps = (const int8_t *)weights + n;
        for (int32_t p = 0; p < 36; p++) {
            int32_t sum = 0;
            for (int32_t t = 0; t < 9; t++) {
                sum += g[p / 6][t / 3] * g[p % 6][t % 3] * taps[4 * t];
            }
            const int16_t found = (int16_t)sum;
            int32_t *const to = u + p * 4 * quads + 2 * k + n % 2;
            __builtin_memcpy((int16_t *)to + n / 2, &found, 2);
        }
    }
}
