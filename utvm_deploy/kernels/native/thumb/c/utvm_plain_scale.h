// As utvm_scale: two roundings, the output's zero point, int8.
static inline int32_t utvm_plain_scale(int32_t value, int32_t multiplier, int32_t offset,
                                       int32_t shift) {
    int32_t high;
    const uint32_t low = utvm_plain_multiply(utvm_add(value, value), multiplier, &high);
    const int32_t rounded = utvm_add(high, (int32_t)(low >> 31));
    return utvm_clamp(utvm_add(rounded, utvm_add(offset, value >> 31)) >> shift, -128, 127);
}
