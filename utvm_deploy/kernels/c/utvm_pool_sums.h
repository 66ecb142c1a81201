// Adds the pixels of some rows to the sums of a channel each; ``before`` may be the same sums.
static inline void utvm_pool_sums(const int8_t *x, const int32_t *before, int32_t *sums,
                                  int32_t pixels, int32_t channels) {
    for (int32_t channel = 0; channel < channels; channel += 64) {
        const int32_t some = channels - channel > 64 ? 64 : channels - channel;
        int32_t totals[64];
        utvm_sum_block(x + channel, pixels, some, channels, totals);
        for (int32_t i = 0; i < some; i++) {
            sums[channel + i] = before[channel + i] + totals[i];
        }
    }
}

// The averages of sums of ``count`` pixels, rounded half away from zero.
static inline void utvm_pool_averages(const int32_t *sums, int8_t *output, int32_t count,
                                      int32_t low, int32_t high, int32_t channels) {
    for (int32_t c = 0; c < channels; c++) {
        const int32_t half = sums[c] < 0 ? -(count / 2) : count / 2;
        output[c] = (int8_t)utvm_clamp((sums[c] + half) / count, low, high);
    }
}
