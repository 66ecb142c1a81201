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

// A side with a period repeats after so many elements; not both have one. Short
// periods are written out into a row.
static inline void utvm_OPERATION_pairs(const int8_t *left, const int8_t *right,
                                        const int32_t *numbers, int8_t *output, int32_t count,
                                        int32_t left_period, int32_t right_period) {
    const int32_t period = left_period + right_period;
    if (period == 0) {
        utvm_OPERATION_all(left, right, numbers, output, count);
        return;
    }
    const int8_t *repeated = left_period > 0 ? left : right;
    int8_t row[256];
    int32_t span = period;
    if (period < 64) {
        span = period * 4 * (64 / period);
        span = span < count ? span : count;
        if (period == 1) {
            utvm_bytes_fill(row, repeated[0], span);
        } else {
            utvm_bytes_copy(row, repeated, period);
            for (int32_t made = period; made < span; made *= 2) {
                utvm_bytes_copy(row + made, row, span - made < made ? span - made : made);
            }
        }
        repeated = row;
    }
    for (int32_t at = 0; at < count; at += span) {
        const int32_t some = count - at < span ? count - at : span;
        utvm_OPERATION_all(left_period > 0 ? repeated : left + at,
                           right_period > 0 ? repeated : right + at, numbers, output + at, some);
    }
}
