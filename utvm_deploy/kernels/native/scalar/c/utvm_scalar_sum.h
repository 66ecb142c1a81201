// A sum of two inputs, each times its factor, with the zero points and the rounding in one number.
static inline int8_t utvm_scalar_summed(int32_t left, int32_t right, const int32_t *n) {
    const uint32_t sum = (uint32_t)left * (uint32_t)n[0] + (uint32_t)right * (uint32_t)n[1];
    return (int8_t)utvm_clamp(utvm_add((int32_t)sum, n[2]) >> n[3], n[4], n[5]);
}

UTVM_ONCE static void utvm_scalar_sum(const int8_t *left, const int8_t *right,
                                      const int32_t *numbers, int8_t *output, int32_t count) {
    // Bytes may alias anything: what is not copied would be loaded for every element.
    const int32_t n[6] = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
    for (; count >= 4; count -= 4, left += 4, right += 4, output += 4) {
        output[0] = utvm_scalar_summed(left[0], right[0], n);
        output[1] = utvm_scalar_summed(left[1], right[1], n);
        output[2] = utvm_scalar_summed(left[2], right[2], n);
        output[3] = utvm_scalar_summed(left[3], right[3], n);
    }
    for (int32_t i = 0; i < count; i++) {
        output[i] = utvm_scalar_summed(left[i], right[i], n);
    }
}
