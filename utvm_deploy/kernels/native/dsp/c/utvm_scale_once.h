// What the assembly computes in three instructions (smmla, asr, ssat). The multiplier, the offset
// and the shift are those of single_rounding.py.
#if defined(__GNUC__)
__attribute__((unused)) // where the assembly does it all
#endif
static inline int32_t utvm_scale_once(int32_t value, int32_t multiplier, int32_t offset,
                                      int32_t shift) {
    int64_t product = (int64_t)value * multiplier;
    return utvm_clamp(utvm_add((int32_t)(product >> 32), offset) >> shift, -128, 127);
}
