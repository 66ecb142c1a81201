// What the assembly computes with SMLAL: (value * multiplier + offset) >> (32 + shift), as int8.
#if defined(__GNUC__)
__attribute__((unused)) // where the assembly does it all
#endif
static inline int32_t utvm_scale_wide(int32_t value, int32_t multiplier, int32_t low, int32_t high,
                                      int32_t shift) {
    int64_t offset = (int64_t)(((uint64_t)(uint32_t)high << 32) | (uint32_t)low);
    int64_t product = (int64_t)value * multiplier + offset;
    return utvm_clamp((int32_t)(product >> 32) >> shift, -128, 127);
}
