static void DENSE(const int8_t *vector, const int8_t *weights, const int32_t *bias,
                  const int32_t *scaling, int8_t *output, int32_t inputs, int32_t outputs,
                  int8_t *filled) {
    const int32_t turns = (inputs + 31) >> 5;
    const int32_t total = 8 * utvm_mve_filled(vector, filled, inputs, 32 * turns);
    const int32_t low = scaling[4], high = scaling[5];
    for (; outputs > 0; outputs -= 4, weights += 64 * turns, bias += 4 * ROWS) {
        int32_t sums[4];
        utvm_mve_halves(filled, weights, turns, sums);
        for (int32_t n = 0; n < 4 && n < outputs; n++) {
            const int32_t place = (n & 1) * 2 + (n >> 1);
            const int32_t *b = bias + place;
            const int32_t sum = FACTOR * (sums[place] - total + b[0]);
            const int32_t value = utvm_scale_wide(sum, SCALING);
            *output++ = (int8_t)utvm_clamp(value, low, high);
        }
    }
}
