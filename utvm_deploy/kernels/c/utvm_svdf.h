// Numbers to where they may lie already, one place lower.
static inline void utvm_shift_run(const int16_t *from, int16_t *to, int32_t count) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    __asm__ volatile("wlstp.16 lr, %[count], 2f\n"
                     "1:\n"
                     "vldrh.16 q0, [%[from]], #16\n"
                     "vstrh.16 q0, [%[to]], #16\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [from] "+r"(from), [to] "+r"(to)
                     : [count] "r"(count)
                     : "lr", "q0", "cc", "memory");
#else
    int32_t i = 0;
    for (; i + 2 <= count; i += 2) {
        uint32_t pair;
        __builtin_memcpy(&pair, from + i, 4);
        __builtin_memcpy(to + i, &pair, 4);
    }
    for (; i < count; i++) {
        to[i] = from[i];
    }
#endif
}

// total + left[0] * right[0] + ..., wrapping.
static inline uint32_t utvm_weigh_run(uint32_t total, const int16_t *left, const int16_t *right,
                                      int32_t count) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    __asm__ volatile("wlstp.16 lr, %[count], 2f\n"
                     "1:\n"
                     "vldrh.16 q0, [%[left]], #16\n"
                     "vldrh.16 q1, [%[right]], #16\n"
                     "vmladava.s16 %[total], q0, q1\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [left] "+r"(left), [right] "+r"(right), [total] "+Te"(total)
                     : [count] "r"(count)
                     : "lr", "q0", "q1", "cc", "memory");
#else
    int32_t i = 0;
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    for (; i + 2 <= count; i += 2) {
        uint32_t a, b;
        __builtin_memcpy(&a, left + i, 4);
        __builtin_memcpy(&b, right + i, 4);
        __asm__("smlad %0, %1, %2, %0" : "+r"(total) : "r"(a), "r"(b));
    }
#endif
    for (; i < count; i++) {
        total += (uint32_t)(left[i] * right[i]);
    }
#endif
    return total;
}

// One step in time. States of `memory` numbers for each filter may lie where they
// lay before; `offsets` are what the input's zero point adds to the features.
static inline void utvm_svdf(const int8_t *input, const int8_t *features, const int32_t *offsets,
                             const int16_t *times, const int32_t *bias, const int16_t *before,
                             int32_t feature_multiplier, int32_t feature_shift,
                             int32_t output_multiplier, int32_t output_shift,
                             int32_t output_zero_point, int8_t *output, int16_t *after,
                             int32_t *sums, int32_t batch, int32_t inputs, int32_t filters,
                             int32_t memory, int32_t rank) {
    const int32_t units = filters / rank;
    for (int32_t b = 0; b < batch; b++, input += inputs) {
        utvm_dot_rows(input, features, inputs, filters, sums);
        const int16_t *states = after;
        for (int32_t f = 0; f < filters; f++, before += memory, after += memory) {
            utvm_shift_run(before + 1, after, memory - 1);
            int32_t newest =
                utvm_requantize(sums[f] + offsets[f], feature_multiplier, feature_shift);
            after[memory - 1] = (int16_t)utvm_clamp(newest, -32768, 32767);
        }
        const int16_t *weights = times;
        for (int32_t u = 0; u < units; u++) {
            uint32_t total = utvm_weigh_run((uint32_t)bias[u], states, weights, rank * memory);
            states += rank * memory;
            weights += rank * memory;
            int32_t value = utvm_requantize((int32_t)total, output_multiplier, output_shift);
            *output++ = (int8_t)utvm_clamp(value + output_zero_point, -128, 127);
        }
    }
}
