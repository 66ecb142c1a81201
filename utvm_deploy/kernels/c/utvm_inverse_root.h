// 1 / sqrt(value) as multiplier, and below as shift: the multiplier times
// 2^(shift - 31). Five Newton-Raphson steps in Q3.28; 0 counts as 1.
static inline int32_t utvm_inverse_root_shift(int32_t value) {
    if (value <= 1) {
        return 0;
    }
    int32_t right = 11;
    for (; value >= 1 << 29; value /= 4) {
        right += 1;
    }
    right -= (utvm_leading_zeros((uint32_t)value) - 1) / 2 - 1;
    return right < 0 ? 0 : -right;
}

static inline int32_t utvm_inverse_root(int32_t value) {
    if (value <= 1) {
        return INT32_MAX;
    }
    int32_t right = 11;
    for (; value >= 1 << 29; value /= 4) {
        right += 1;
    }
    int32_t pairs = (utvm_leading_zeros((uint32_t)value) - 1) / 2 - 1;
    int32_t half = utvm_rounded_shift((value << 2 * pairs) >> 1, 1);
    int32_t x = 1 << 28;
    for (int32_t step = 0; step < 5; step++) {
        int32_t cube = utvm_high_product(utvm_high_product(x, x), x);
        int32_t product = utvm_high_product(half, utvm_saturated_shift(cube, 6));
        // 3 / 2
        x = utvm_saturated_shift(utvm_high_product((1 << 28) + (1 << 27), x) - product, 3);
    }
    x = utvm_high_product(x, 1518500250); // sqrt(2) / 2
    return right < pairs ? x << (pairs - right) : x;
}
