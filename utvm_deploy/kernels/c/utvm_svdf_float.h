// One step in time. States of `memory` numbers for each filter may lie where they
// lay before. A lower limit of minus infinity stands for no activation.
UTVM_EXACT_FLOAT static inline void
utvm_svdf_float(const float *input, const float *features, const float *times, const float *bias,
                const float *before, const float *limits, float *output, float *after,
                int32_t batch, int32_t inputs, int32_t filters, int32_t memory, int32_t rank) {
    for (int32_t b = 0; b < batch; b++, input += inputs) {
        const float *states = after;
        for (int32_t f = 0; f < filters; f++, before += memory, after += memory) {
            float newest = 0.0f;
            for (int32_t i = 0; i < inputs; i++) {
                newest += features[f * inputs + i] * input[i];
            }
            for (int32_t i = 1; i < memory; i++) {
                after[i - 1] = before[i];
            }
            after[memory - 1] = newest;
        }
        const float *weights = times;
        for (int32_t u = 0; u < filters / rank; u++) {
            float total = 0.0f;
            for (int32_t i = 0; i < rank * memory; i++) {
                total += *weights++ * *states++;
            }
            total += bias[u];
            if (limits[0] >= -1.0f) {
                total = total > limits[0] ? total : limits[0];
                total = limits[1] < total ? limits[1] : total;
            }
            *output++ = total;
        }
    }
}
