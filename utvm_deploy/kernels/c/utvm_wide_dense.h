static inline void utvm_wide_dense(const int16_t *input, const int8_t *weights, const int64_t *bias,
                                   const int32_t *scales, int32_t low, int32_t high,
                                   int16_t *output, int16_t *row, int64_t *totals, int32_t batch,
                                   int32_t inputs, int32_t outputs, int32_t pitch) {
    for (int32_t n = 0; n < batch; n++, input += inputs, output += outputs) {
        const int16_t *vector = input;
        if (pitch != inputs) {
            for (int32_t i = 0; i < pitch; i++) {
                row[i] = i < inputs ? input[i] : 0;
            }
            vector = row;
        }
        utvm_wide_rows(vector, weights, pitch, outputs, totals);
        for (int32_t o = 0; o < outputs; o++) {
            const int32_t *scale = scales + 3 * o;
            int32_t value =
                utvm_requantize_exact_wide(totals[o] + bias[o], scale[0], scale[1], scale[2]);
            output[o] = (int16_t)utvm_clamp(value, low, high);
        }
    }
}
