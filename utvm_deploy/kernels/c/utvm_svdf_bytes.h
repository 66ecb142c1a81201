// SVDF as in utvm_svdf.h, whose states and weights over time are bytes. A new state and the zero
// point are added up in 8 bits, as TFLite Micro does; "bias" is for states as they are stored.
static inline void utvm_svdf_bytes(const int8_t *input, const int8_t *features,
                                   const int32_t *offsets, const int8_t *times, const int32_t *bias,
                                   const int8_t *before, int32_t feature_multiplier,
                                   int32_t feature_shift, int32_t state_zero_point,
                                   int32_t output_multiplier, int32_t output_shift,
                                   int32_t output_zero_point, int8_t *output, int8_t *after,
                                   int32_t *sums, int32_t batch, int32_t inputs, int32_t filters,
                                   int32_t memory, int32_t rank) {
    const int32_t units = filters / rank;
    for (int32_t b = 0; b < batch; b++, input += inputs) {
        utvm_dot_rows(input, features, inputs, filters, sums);
        const int8_t *states = after;
        for (int32_t f = 0; f < filters; f++, before += memory, after += memory) {
            for (int32_t i = 0; i < memory - 1; i++) {
                after[i] = before[i + 1];
            }
            int32_t newest =
                utvm_requantize(sums[f] + offsets[f], feature_multiplier, feature_shift);
            newest = utvm_clamp(newest, -128, 127) + state_zero_point;
            after[memory - 1] = (int8_t)(((newest + 128) & 255) - 128);
        }
        const int8_t *weights = times;
        for (int32_t u = 0; u < units; u++) {
            uint32_t total = (uint32_t)bias[u];
            for (int32_t i = 0; i < rank * memory; i++) {
                total += (uint32_t)(*states++ * *weights++);
            }
            int32_t value = utvm_requantize((int32_t)total, output_multiplier, output_shift);
            *output++ = (int8_t)utvm_clamp(value + output_zero_point, -128, 127);
        }
    }
}
