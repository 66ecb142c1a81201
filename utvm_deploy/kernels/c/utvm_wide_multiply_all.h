// Any number of elements: whole fours, and the rest one by one.
static inline void utvm_wide_multiply_all(const int16_t *left, const int16_t *right,
                                          const int32_t *numbers, int16_t *output, int32_t count) {
    const int32_t whole = count & ~3;
    if (whole > 0) {
        utvm_wide_multiply(left, right, numbers, output, whole);
    }
    for (int32_t i = whole; i < count; i++) {
        int32_t value = utvm_requantize(left[i] * right[i], numbers[0], -numbers[2]);
        output[i] = (int16_t)utvm_clamp(value, numbers[3], numbers[4]);
    }
}
