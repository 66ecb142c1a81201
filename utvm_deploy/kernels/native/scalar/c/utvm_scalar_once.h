// A sum by one rounding: ((value * multiplier) >> 32) + offset, shifted right.
static inline int32_t utvm_scalar_once(int32_t value, int32_t multiplier, int32_t offset,
                                       int32_t shift) {
    return utvm_add((int32_t)(((int64_t)value * multiplier) >> 32), offset) >> shift;
}
