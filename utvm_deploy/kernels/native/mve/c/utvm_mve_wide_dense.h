static inline void utvm_mve_wide_dense(const int16_t *input, const int8_t *weights,
                                       const int64_t *bias, const int32_t *scales, int32_t low,
                                       int32_t high, int16_t *output, int32_t batch, int32_t inputs,
                                       int32_t outputs) {
    const int32_t padded = (inputs + 7) / 8 * 8;
    for (int32_t n = 0; n < batch; n++, input += inputs) {
        const int32_t *scale = scales;
        for (int32_t first = 0; first < outputs; first += 4) {
            int64_t totals[4];
            utvm_mve_wide_four(input, weights + first * padded, totals, inputs);
            for (int32_t i = 0; i < 4 && first + i < outputs; i++, scale += 3) {
                int32_t value = utvm_requantize_exact_wide(totals[i] + bias[first + i], scale[0],
                                                           scale[1], scale[2]);
                *output++ = (int16_t)utvm_clamp(value, low, high);
            }
        }
    }
}
