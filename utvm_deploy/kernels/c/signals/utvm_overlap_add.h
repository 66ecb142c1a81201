// Frames added up where they overlap. A state has what the next frame is added to.
static inline void utvm_overlap_add_NAME(const NUMBER *input, const NUMBER *before, NUMBER *output,
                                         NUMBER *after, int32_t rows, int32_t frames, int32_t size,
                                         int32_t step) {
    for (int32_t row = 0; row < rows; row++, before += size, after += size) {
        const NUMBER *sums = before;
        for (int32_t frame = 0; frame < frames; frame++, input += size) {
            for (int32_t i = 0; i < size; i++) {
                const NUMBER sum = utvm_overlapped_NAME(input[i], sums[i]);
                if (i < step) {
                    *output++ = sum;
                } else {
                    after[i - step] = sum;
                }
            }
            for (int32_t i = size - step; i < size; i++) {
                after[i] = 0;
            }
            sums = after;
        }
    }
}
