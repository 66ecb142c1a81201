for (int32_t c = 0; c < walk[6]; c += 4, weights += walk[5], scaling += 16) {
    const int16_t *x = first + c;
    const int8_t *w = weights;
    int32_t sums[4] = {0};
    for (int32_t row = 0; row < walk[0]; row++) {
        for (int32_t column = 0; column < walk[1]; column++) {
            for (int32_t i = 0; i < 4; i++) {
                sums[i] += x[i] * w[i];
            }
            x += walk[3] / 2;
            w += 4;
        }
        x += walk[2] / 2;
        w += walk[4];
    }
    for (int32_t i = 0; i < 4; i++) {
        const int32_t *s = scaling + i;
        int64_t product = (int64_t)(sums[i] + s[0]) * s[4];
        int32_t value = ((int32_t)(product >> 32) + s[8]) >> s[12];
        output[c + i] = (int16_t)utvm_clamp(value, walk[7], walk[8]);
    }
}
