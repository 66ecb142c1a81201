for (int32_t n = 0; n < channels; n += 4) {
    int32_t sum0 = c[n];
    int32_t sum1 = c[n + 1];
    int32_t sum2 = c[n + 2];
    int32_t sum3 = c[n + 3];
    for (int32_t y = 0; y < HEIGHT; y++) {
        const int8_t *value = a + y * a_row + n;
        const int8_t *weight = b + y * b_row + n;
        int32_t x = 0;
        // Two taps of four channels. SMLAD would need its operands packed first.
        for (; x + 2 <= WIDTH; x += 2) {
            uint32_t v0 = utvm_dsp_taps_word(value);
            uint32_t v1 = utvm_dsp_taps_word(value + a_pixel);
            uint32_t w0 = utvm_dsp_taps_word(weight);
            uint32_t w1 = utvm_dsp_taps_word(weight + b_pixel);
            int32_t ve0 = __sxtb16(v0), ve1 = __sxtb16(v1);
            int32_t we0 = __sxtb16(w0), we1 = __sxtb16(w1);
            sum0 = __smlabb(ve0, we0, __smlabb(ve1, we1, sum0));
            sum2 = __smlatt(ve0, we0, __smlatt(ve1, we1, sum2));
            int32_t vo0 = __sxtb16(v0 >> 8), vo1 = __sxtb16(v1 >> 8);
            int32_t wo0 = __sxtb16(w0 >> 8), wo1 = __sxtb16(w1 >> 8);
            sum1 = __smlabb(vo0, wo0, __smlabb(vo1, wo1, sum1));
            sum3 = __smlatt(vo0, wo0, __smlatt(vo1, wo1, sum3));
            value += 2 * a_pixel;
            weight += 2 * b_pixel;
        }
        if (x < WIDTH) {
            uint32_t v0 = utvm_dsp_taps_word(value);
            uint32_t w0 = utvm_dsp_taps_word(weight);
            int32_t ve0 = __sxtb16(v0), we0 = __sxtb16(w0);
            int32_t vo0 = __sxtb16(v0 >> 8), wo0 = __sxtb16(w0 >> 8);
            sum0 = __smlabb(ve0, we0, sum0);
            sum1 = __smlabb(vo0, wo0, sum1);
            sum2 = __smlatt(ve0, we0, sum2);
            sum3 = __smlatt(vo0, wo0, sum3);
        }
    }
    c[n] = sum0;
    c[n + 1] = sum1;
    c[n + 2] = sum2;
    c[n + 3] = sum3;
}
