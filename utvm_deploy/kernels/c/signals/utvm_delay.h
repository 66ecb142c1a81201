// Rows of samples that come "delay" samples later; "before" and "after" have those to come.
static inline void utvm_delay(const int16_t *input, const int16_t *before, int16_t *output,
                              int16_t *after, int32_t rows, int32_t samples, int32_t delay) {
    const int32_t kept = delay > 0 ? delay : 1;
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t i = 0; i < samples; i++) {
            output[i] = i < delay ? before[i] : input[i - delay];
        }
        // In this order, because both states may lie at the same place.
        for (int32_t i = 0; i < delay; i++) {
            after[i] = i + samples < delay ? before[i + samples] : input[i + samples - delay];
        }
        if (delay == 0) {
            after[0] = 0;
        }
        input += samples, output += samples, before += kept, after += kept;
    }
}
