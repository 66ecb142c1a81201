// Frames of rows of samples. A state has "history" samples of each row, then the number of steps
// that went before the first frame. What lacks samples is 0, and then nothing is valid.
static inline void utvm_framer(const int16_t *input, const int16_t *before, int16_t *output,
                               uint8_t *valid, int16_t *after, int32_t rows, int32_t samples,
                               int32_t size, int32_t step, int32_t history, int32_t missing) {
    const int32_t frames = samples / step, seen = before[rows * history];
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t frame = 0; frame < frames; frame++) {
            for (int32_t i = 0; i < size; i++) {
                const int32_t at = frame * step + i - history;
                const int16_t sample = at < 0 ? before[at + history] : input[at];
                *output++ = seen + frame < missing ? (int16_t)0 : sample;
            }
        }
        for (int32_t i = 0; i < history; i++) {
            const int32_t at = i + samples;
            after[i] = at < history ? before[at] : input[at - history];
        }
        input += samples, before += history, after += history;
    }
    *valid = seen >= missing;
    *after = (int16_t)(seen + frames < missing ? seen + frames : missing);
}
