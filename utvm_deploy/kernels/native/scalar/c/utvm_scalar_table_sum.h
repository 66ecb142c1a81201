// The same, rounded twice, with a table for each side: numbers, then both tables.
UTVM_ONCE static void utvm_scalar_table_sum(const int8_t *left, const int8_t *right,
                                            const int32_t *numbers, int8_t *output, int32_t count) {
    const int32_t m = numbers[0], o = numbers[1], s = numbers[2];
    const int32_t low = numbers[3], high = numbers[4];
    const int32_t *const first = numbers + 5, *const second = first + 256;
    for (int32_t i = 0; i < count; i++) {
        const int32_t sum = first[(uint8_t)left[i]] + second[(uint8_t)right[i]];
        output[i] = (int8_t)utvm_clamp(utvm_scale(sum, m, o, s), low, high);
    }
}
