// One frame more. A state has the latest frames, and then 1 more than the number of those that the
// next output has already; 0 says that no frame was there. The first one counts several times.
static inline void utvm_stacker(const int16_t *input, const int16_t *before, int16_t *output,
                                uint8_t *valid, int16_t *after, int32_t channels, int32_t left,
                                int32_t frames, int32_t step) {
    const int32_t all = frames * channels, known = before[all];
    const int32_t fresh = known ? 1 : left + 1;
    for (int32_t i = 0; i < all; i++) {
        const int32_t at = i + fresh * channels;
        after[i] = at < all ? before[at] : input[i % channels];
    }
    const int32_t there = (known ? known - 1 : 0) + fresh;
    *valid = there >= frames;
    for (int32_t i = 0; i < all; i++) {
        output[i] = *valid ? after[i] : (int16_t)0;
    }
    after[all] = (int16_t)(1 + there - (*valid ? step : 0));
}
