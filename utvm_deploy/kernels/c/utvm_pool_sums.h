// Adds the pixels of some rows to the sums of a channel each; ``before`` may be the same sums.
static inline void utvm_pool_sums(const int8_t *x, const int32_t *before, int32_t *sums,
                                  int32_t pixels, int32_t channels) {
    for (int32_t fours = channels >> 2; fours > 0; fours--, x += 4, before += 4, sums += 4) {
        int32_t s0 = before[0], s1 = before[1], s2 = before[2], s3 = before[3];
        const int8_t *at = x;
        for (int32_t p = pixels; p > 0; p--, at += channels) {
            s0 += at[0];
            s1 += at[1];
            s2 += at[2];
            s3 += at[3];
        }
        sums[0] = s0;
        sums[1] = s1;
        sums[2] = s2;
        sums[3] = s3;
    }
    for (int32_t ones = channels & 3; ones > 0; ones--, x++, before++, sums++) {
        int32_t sum = *before;
        const int8_t *at = x;
        for (int32_t p = pixels; p > 0; p--, at += channels) {
            sum += *at;
        }
        *sums = sum;
    }
}

// The same for the first rows.
static inline void utvm_first_pool_sums(const int8_t *x, int32_t *sums, int32_t pixels,
                                        int32_t channels) {
    for (int32_t c = 0; c < channels; c++) {
        sums[c] = 0;
    }
    utvm_pool_sums(x, sums, sums, pixels, channels);
}

// The averages of sums of ``count`` pixels, rounded half away from zero.
static inline void utvm_pool_averages(const int32_t *sums, int8_t *output, int32_t count,
                                      int32_t low, int32_t high, int32_t channels) {
    for (int32_t c = 0; c < channels; c++) {
        const int32_t half = sums[c] > 0 ? count / 2 : -(count / 2);
        const int32_t value = (sums[c] + half) / count;
        output[c] = (int8_t)(value < low ? low : value > high ? high : value);
    }
}
