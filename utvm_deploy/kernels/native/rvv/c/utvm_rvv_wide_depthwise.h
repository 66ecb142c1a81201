for (int32_t c = 0; c < walk[6]; c++) {
    const int32_t *s = scaling + c / 16 * 48 + c % 16;
    const int8_t *w = weights + c / 16 * walk[5] + c % 16;
    const int16_t *x = first + c;
    uint32_t sum = (uint32_t)s[0];
    for (int32_t row = 0; row < walk[0]; row++) {
        for (int32_t column = 0; column < walk[1]; column++) {
            sum += (uint32_t)(*x * *w);
            x += walk[3] / 2;
            w += 16;
        }
        x += walk[2] / 2;
        w += walk[4];
    }
    const int32_t value = utvm_rvv_rounded((int32_t)sum, s[16], s[32]);
    output[c] = (int16_t)utvm_clamp(value, walk[7], walk[8]);
}
