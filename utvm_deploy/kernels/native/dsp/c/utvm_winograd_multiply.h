const int32_t depth = 2 * quads;
for (int32_t p = 0; p < 16; p++, u += 2 * depth) {
    for (int32_t g = 0; g < groups; g++) {
        int32_t *products = v + depth * tiles;
        for (int32_t n = 0; n < 2 * tiles; n++) {
            uint32_t sum = 0;
            for (int32_t k = 0; k < depth; k++) {
                int16_t x[2], w[2];
                __builtin_memcpy(x, v + k * tiles + n / 2, 4);
                __builtin_memcpy(w, u + 2 * k + n % 2, 4);
                sum += (uint32_t)(x[0] * w[0]) + (uint32_t)(x[1] * w[1]);
            }
            products[n] = (int32_t)sum;
        }
        v = products + 2 * tiles;
    }
}
