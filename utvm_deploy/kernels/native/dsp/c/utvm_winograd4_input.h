// V of a group: B^T d, and then B from the other side.
static const int8_t b[6][6] = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                               {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
for (int32_t n = 0; n < 4 * quads * TILES; n++) {
    const int32_t t = n % TILES, lane = n / TILES % 2, word = n / TILES / 2;
    const int8_t *const d = image + 16 * t * quads + word / 2 * 4 + word % 2 + 2 * lane;
    for (int32_t k = 0; k < 36; k++) {
        part[k] = 0;
        for (int32_t y = 0; y < 6; y++) {
            part[k] += b[k / 6][y] * d[y * row + k % 6 * 4 * quads];
        }
    }
    for (int32_t p = 0; p < 36; p++) {
        int32_t sum = 0;
        for (int32_t x = 0; x < 6; x++) {
            sum += b[p % 6][x] * part[p / 6 * 6 + x];
        }
        const int16_t found = (int16_t)sum;
        __builtin_memcpy((int16_t *)(to + p * stride / 4 + word * TILES + t) + lane, &found, 2);
    }
}
