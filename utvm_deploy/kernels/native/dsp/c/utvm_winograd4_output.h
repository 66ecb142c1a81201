for (int32_t t = 0; t < tiles; t++, places += 7) {
    for (int32_t n = 0; n < 2 * places[3]; n++) {
        // A^T M A without common powers of two; 64 times each output by the inverse of 9.
        static const int8_t a[4][6] = {
            {6, -4, -4, 1, 1, 0}, {0, -2, 2, 1, -1, 0}, {0, -1, -1, 1, 1, 0}, {0, -1, 1, 2, -2, 6}};
        static const int8_t missing[4] = {0, 1, 2, 2};
        const int32_t k = n % 2, y = n / 2;
        int8_t *const to = output + places[2] + y * row + k;
        for (int32_t x = 3; x >= 0; x--) {
            uint32_t sum = 0;
            for (int32_t p = 0; p < 36; p++) {
                const int32_t factor = a[y][p / 6] * a[x][p % 6];
                sum += (uint32_t)v[(places[0] + p * places[1]) / 4 + k] * (uint32_t)factor;
            }
            sum = sum * (954437177u << (missing[y] + missing[x])) + (uint32_t)scaling[k];
            const int32_t value =
                utvm_scale((int32_t)sum / 64, scaling[2 + k], scaling[4 + k], scaling[6 + k]);
            const int32_t place = (x > 0 ? places[4] : 0) + (x > 1 ? places[5] : 0);
            to[place + (x > 2 ? places[6] : 0)] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
        }
    }
}
