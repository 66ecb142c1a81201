static inline int8_t utvm_mean_of(int32_t total, int32_t offset, int32_t multiplier, int32_t shift,
                                  int32_t zero_point) {
    total = utvm_requantize(utvm_add(total, offset), multiplier, shift);
    total += zero_point;
#if defined(__ARM_FEATURE_SAT) && defined(__GNUC__)
    __asm__("ssat %0, #8, %0" : "+r"(total));
    return (int8_t)total;
#else
    return (int8_t)utvm_clamp(total, -128, 127);
#endif
}

// Means over the middle one of three dimensions.
static inline void utvm_mean(const int8_t *input, int32_t offset, int32_t multiplier, int32_t shift,
                             int32_t zero_point, int8_t *output, int32_t outer, int32_t count,
                             int32_t inner) {
    for (int32_t n = 0; n < outer; n++, input += count * inner, output += inner) {
        if (inner == 1) {
            int32_t total = utvm_sum_run(input, count);
            output[0] = utvm_mean_of(total, offset, multiplier, shift, zero_point);
            continue;
        }
        for (int32_t column = 0; column < inner; column += 64) {
            const int32_t some = inner - column > 64 ? 64 : inner - column;
            int32_t totals[64];
            utvm_sum_block(input + column, count, some, inner, totals);
            for (int32_t i = 0; i < some; i++) {
                output[column + i] = utvm_mean_of(totals[i], offset, multiplier, shift, zero_point);
            }
        }
    }
}
