// `pitch` bytes are from column to column.
for (int32_t q = 0; q < quads; q++, first += 4, second += 4) {
    for (int32_t half = 0; half < 2; half++) {
        for (int32_t t = 0; t < tiles; t++, to++) {
            int16_t d[4][2];
            for (int32_t n = 0; n < 8; n++) {
                const int32_t from = (2 * t + n / 2) * pitch + half + n % 2 * 2;
                const int32_t other = is_sum ? second[from] : -second[from];
                d[n / 2][n % 2] = (int16_t)(first[from] + other);
            }
            for (int32_t l = 0; l < 2; l++) {
                const int16_t found[4] = {
                    (int16_t)(d[0][l] - d[2][l]), (int16_t)(d[1][l] + d[2][l]),
                    (int16_t)(d[2][l] - d[1][l]), (int16_t)(d[1][l] - d[3][l])};
                for (int32_t p = 0; p < 4; p++) {
                    __builtin_memcpy((int16_t *)(to + p * stride / 4) + l, &found[p], 2);
                }
            }
        }
    }
}
