// As utvm_scale_wide: (value * multiplier + offset) >> (32 + shift), as int8.
static inline int32_t utvm_plain_scale_wide(int32_t value, int32_t multiplier, int32_t offset_low,
                                            int32_t offset_high, int32_t shift) {
    int32_t high;
    const uint32_t low = utvm_plain_multiply(value, multiplier, &high);
    const int32_t carry = low + (uint32_t)offset_low < low;
    return utvm_clamp(utvm_add(utvm_add(high, offset_high), carry) >> shift, -128, 127);
}
