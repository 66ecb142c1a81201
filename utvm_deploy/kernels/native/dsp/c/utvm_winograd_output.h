for (int32_t t = 0; t < tiles; t++, places += 5) {
    for (int32_t k = 0; k < 2; k++) {
        // Y = A^T M A, with 4 * bias in the middle.
        uint32_t m[4][4], rows[2][4];
        for (int32_t p = 0; p < 16; p++) {
            m[p / 4][p % 4] = (uint32_t)v[(places[0] + p * places[1]) / 4 + k];
        }
        m[1][1] += (uint32_t)scaling[k];
        for (int32_t x = 0; x < 4; x++) {
            rows[0][x] = m[0][x] + m[1][x] + m[2][x];
            rows[1][x] = m[1][x] - m[2][x] - m[3][x];
        }
        for (int32_t n = 3; n >= 0; n--) {
            const uint32_t *r = rows[n / 2];
            const uint32_t sum = n % 2 ? r[1] - r[2] - r[3] : r[0] + r[1] + r[2];
            const int32_t value =
                utvm_scale((int32_t)sum / 4, scaling[2 + k], scaling[4 + k], scaling[6 + k]);
            output[places[2] + n % 2 * places[3] + n / 2 * places[4] + k] =
                (int8_t)utvm_clamp(value, limits[0], limits[1]);
        }
    }
}
