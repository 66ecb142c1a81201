// A word's lower half, which is not negative, and its upper half.
static inline uint32_t utvm_lower_half(const uint32_t *at) {
    uint16_t half;
    __builtin_memcpy(&half, __builtin_assume_aligned(at, 4), 2);
    return half;
}

static inline uint32_t utvm_upper_half(const uint32_t *at) {
    int16_t half;
    __builtin_memcpy(&half, __builtin_assume_aligned((const uint8_t *)at + 2, 2), 2);
    return (uint32_t)(int32_t)half;
}
