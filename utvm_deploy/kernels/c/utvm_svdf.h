// One step in time. States of `memory` numbers for each filter may lie where they
// lay before; `offsets` are what the input's zero point adds to the features.
static inline void utvm_svdf(const int8_t *input, const int8_t *features, const int32_t *offsets,
                             const int16_t *times, const int32_t *bias, const int16_t *before,
                             int32_t feature_multiplier, int32_t feature_shift,
                             int32_t output_multiplier, int32_t output_shift,
                             int32_t output_zero_point, int8_t *output, int16_t *after,
                             int32_t *sums, int32_t batch, int32_t inputs, int32_t filters,
                             int32_t memory, int32_t rank) {
    const int32_t units = filters / rank;
    for (int32_t b = 0; b < batch; b++, input += inputs) {
        utvm_dot_rows(input, features, inputs, filters, sums);
        const int16_t *states = after;
        for (int32_t f = 0; f < filters; f++, before += memory, after += memory) {
            for (int32_t m = 0; m + 1 < memory; m++) {
                after[m] = before[m + 1];
            }
            int32_t newest =
                utvm_requantize(sums[f] + offsets[f], feature_multiplier, feature_shift);
            after[memory - 1] = (int16_t)utvm_clamp(newest, -32768, 32767);
        }
        const int16_t *weights = times;
        for (int32_t u = 0; u < units; u++) {
            uint32_t total = (uint32_t)bias[u];
            for (int32_t i = 0; i < rank * memory; i++) {
                total += (uint32_t)(states[i] * weights[i]);
            }
            states += rank * memory;
            weights += rank * memory;
            int32_t value = utvm_requantize((int32_t)total, output_multiplier, output_shift);
            *output++ = (int8_t)utvm_clamp(value + output_zero_point, -128, 127);
        }
    }
}
