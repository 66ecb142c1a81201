for (int32_t c = 0; c < walk[6]; c++) {
    const int32_t *s = scaling + c / 8 * 24 + c % 2 * 4 + c % 8 / 2;
    const int8_t *w = weights + c / 8 * walk[5] + c % 8;
    const int16_t *x = first + c;
    uint32_t sum = (uint32_t)s[0];
    for (int32_t row = 0; row < walk[0]; row++) {
        for (int32_t column = 0; column < walk[1]; column++) {
            sum += (uint32_t)(*x * *w);
            x += walk[3] / 2;
            w += 8;
        }
        x += walk[2] / 2;
        w += walk[4];
    }
    int64_t product = (int64_t)(int32_t)sum * s[8];
    int32_t value = ((int32_t)(product >> 32) + (1 << (-s[16] - 1))) >> -s[16];
    output[c] = (int16_t)utvm_clamp(value, walk[7], walk[8]);
}
