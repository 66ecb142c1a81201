// Any number of elements: whole words where they lie, the rest in words of its own.
static inline void utvm_OPERATION_all(const int8_t *left, const int8_t *right,
                                      const int32_t *numbers, int8_t *output, int32_t count) {
    const int32_t whole = count & ~3;
    if (whole > 0) {
        utvm_OPERATION_words(left, right, numbers, output, whole);
    }
    if (whole < count) {
        int8_t ends[3][4] = {{0}};
        for (int32_t i = whole; i < count; i++) {
            ends[0][i - whole] = left[i];
            ends[1][i - whole] = right[i];
        }
        utvm_OPERATION_words(ends[0], ends[1], numbers, ends[2], 4);
        for (int32_t i = whole; i < count; i++) {
            output[i] = ends[2][i - whole];
        }
    }
}
