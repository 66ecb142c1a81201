// The products of a row with four outputs' weights, two pairs, each with 8 added.
static inline void utvm_mve_halves(const int8_t *row, const int8_t *first, int32_t turns,
                                   int32_t *sums) {
    const int8_t *second = first + 32 * turns;
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    int32_t a = 0, b = 0, c = 0, d = 0;
    __asm__ volatile("vmov.i8 q6, #15\n"
                     "dls lr, %[turns]\n"
                     "1:\n"
                     "vldrb.8 q2, [%[first]], #16\n"
                     "vldrb.8 q0, [%[row]], #16\n"
                     "vand q3, q2, q6\n"
                     "vldrb.8 q4, [%[first]], #16\n"
                     "vshr.u8 q2, q2, #4\n"
                     "vldrb.8 q1, [%[row]], #16\n"
                     "vmladava.s8 %[a], q0, q3\n"
                     "vand q5, q4, q6\n"
                     "vmladava.s8 %[a], q1, q2\n"
                     "vshr.u8 q4, q4, #4\n"
                     "vldrb.8 q2, [%[second]], #16\n"
                     "vmladava.s8 %[b], q0, q5\n"
                     "vand q3, q2, q6\n"
                     "vmladava.s8 %[b], q1, q4\n"
                     "vshr.u8 q2, q2, #4\n"
                     "vldrb.8 q4, [%[second]], #16\n"
                     "vmladava.s8 %[c], q0, q3\n"
                     "vand q5, q4, q6\n"
                     "vmladava.s8 %[c], q1, q2\n"
                     "vshr.u8 q4, q4, #4\n"
                     "vmladava.s8 %[d], q0, q5\n"
                     "vmladava.s8 %[d], q1, q4\n"
                     "le lr, 1b\n"
                     : [row] "+r"(row), [first] "+r"(first), [second] "+r"(second), [a] "+Te"(a),
                       [b] "+Te"(b), [c] "+Te"(c), [d] "+Te"(d)
                     : [turns] "r"(turns)
                     : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "memory");
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
#else
    for (int32_t n = 0; n < 4; n++) {
        const int8_t *weights = (n < 2 ? first : second) + n % 2 * 16;
        sums[n] = 0;
        for (int32_t k = 0; k < 32 * turns; k++) {
            const uint8_t both = (uint8_t)weights[k / 32 * 32 + k % 16];
            sums[n] += row[k] * (k % 32 < 16 ? both & 15 : both >> 4);
        }
    }
#endif
}

// Copies a row, fills it up with zeros, and gives its sum.
static inline int32_t utvm_mve_filled(const int8_t *vector, int8_t *to, int32_t count,
                                      int32_t filled) {
    int32_t i = 0, total = 0;
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    const int32_t whole = count & ~15;
    if (whole > 0) {
        __asm__ volatile("dls lr, %[turns]\n"
                         "1:\n"
                         "vldrb.8 q0, [%[vector]], #16\n"
                         "vaddva.s8 %[total], q0\n"
                         "vstrb.8 q0, [%[to]], #16\n"
                         "le lr, 1b\n"
                         : [vector] "+r"(vector), [to] "+r"(to), [total] "+Te"(total)
                         : [turns] "r"(whole >> 4)
                         : "lr", "q0", "memory");
        count -= whole;
        filled -= whole;
    }
#endif
    for (; i < count; i++) {
        to[i] = vector[i];
        total += vector[i];
    }
    for (; i < filled; i++) {
        to[i] = 0;
    }
    return total;
}
