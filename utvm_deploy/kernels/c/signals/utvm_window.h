// Rows of samples times weights.
static inline void utvm_window(const int16_t *input, const int16_t *weights, int16_t *output,
                               int32_t rows, int32_t samples, int32_t shift) {
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t i = 0; i < samples; i++) {
            *output++ = (int16_t)utvm_clamp((*input++ * weights[i]) >> shift, INT16_MIN, INT16_MAX);
        }
    }
}
