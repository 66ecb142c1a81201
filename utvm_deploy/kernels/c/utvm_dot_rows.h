#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
// The products of a vector with four rows, sixteen bytes at a time.
static inline void utvm_dot_lanes(const int8_t *vector, const int8_t *matrix, int32_t pitch,
                                  int32_t count, int32_t *sums) {
    const int8_t *second = matrix + pitch;
    const int8_t *third = second + pitch;
    const int8_t *fourth = third + pitch;
    int32_t a = 0, b = 0, c = 0, d = 0;
    __asm__ volatile(
        "wlstp.8 lr, %[count], 2f\n"
        "1:\n"
        "vldrb.8 q0, [%[vector]], #16\n"
        "vldrb.8 q1, [%[first]], #16\n"
        "vmladava.s8 %[a], q0, q1\n"
        "vldrb.8 q2, [%[second]], #16\n"
        "vmladava.s8 %[b], q0, q2\n"
        "vldrb.8 q1, [%[third]], #16\n"
        "vmladava.s8 %[c], q0, q1\n"
        "vldrb.8 q2, [%[fourth]], #16\n"
        "vmladava.s8 %[d], q0, q2\n"
        "letp lr, 1b\n"
        "2:\n"
        : [vector] "+r"(vector), [first] "+r"(matrix), [second] "+r"(second), [third] "+r"(third),
          [fourth] "+r"(fourth), [a] "+Te"(a), [b] "+Te"(b), [c] "+Te"(c), [d] "+Te"(d)
        : [count] "r"(count)
        : "lr", "q0", "q1", "q2", "cc", "memory");
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}
#endif

// The products of a vector with rows that lie one after the other.
static inline void utvm_dot_rows(const int8_t *vector, const int8_t *matrix, int32_t depth,
                                 int32_t rows, int32_t *sums) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    for (; rows >= 4; rows -= 4, matrix += 4 * depth, sums += 4) {
        utvm_dot_lanes(vector, matrix, depth, depth, sums);
    }
    for (; rows > 0; rows--, matrix += depth, sums++) {
        int32_t same[4]; // four times this row
        utvm_dot_lanes(vector, matrix, 0, depth, same);
        sums[0] = same[0];
    }
#else
    const int32_t whole = depth & ~3;
    const int32_t fours = whole > 0 ? rows & ~3 : 0;
    if (fours > 0) {
        utvm_dot_fours(vector, matrix, depth, whole, sums, fours >> 2);
    }
    for (int32_t row = fours; row < rows; row++) {
        sums[row] = 0;
    }
    for (int32_t row = 0; row < rows; row++) {
        int32_t total = sums[row];
        for (int32_t i = row < fours ? whole : 0; i < depth; i++) {
            total += vector[i] * matrix[row * depth + i];
        }
        sums[row] = total;
    }
#endif
}
