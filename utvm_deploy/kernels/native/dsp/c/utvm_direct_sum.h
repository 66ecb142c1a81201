#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
static inline int32_t utvm_rounded_high(int32_t a, int32_t b, int32_t added) {
    int32_t made;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(made) : "r"(a), "r"(b), "r"(added));
    return made;
}
#else
// The high word of the product, rounded, and a sum.
static inline int32_t utvm_rounded_high(int32_t a, int32_t b, int32_t added) {
    return (int32_t)(((int64_t)a * b + INT64_C(0x80000000)) >> 32) + added;
}
#endif

// A sum of few elements without a table. After the numbers of every operator: the zero point of the
// side that is requantized, shifted by 21, its multiplier, offset, shift and sign; then the factor
// of the other side, and what is added. The limits are those of the type.
UTVM_ONCE static void utvm_direct_sum(const int8_t *left, const int8_t *right,
                                      const int32_t *numbers, int8_t *output, int32_t count) {
    // Bytes may alias anything: what is not copied would be loaded for every element.
    const int32_t multiplier = numbers[0], offset = numbers[1], shift = numbers[2];
    const int32_t zero = numbers[8], scale = numbers[9], half = numbers[10], down = numbers[11];
    const int32_t sign = numbers[12], factor = numbers[13], constant = numbers[14];
    for (int32_t i = 0; i < count; i++) {
        const int32_t raised = left[i] * (1 << 21) - zero;
        const int32_t rounded = utvm_rounded_high(raised, scale, half + (raised >> 31)) >> down;
        const int32_t doubled = (sign * rounded + right[i] * factor + constant) * 2;
        const int32_t value = utvm_rounded_high(doubled, multiplier, offset + (doubled >> 31));
        output[i] = (int8_t)utvm_clamp(value >> shift, -128, 127);
    }
}
