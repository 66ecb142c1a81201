// As utvm_scale, of a sum that is doubled already.
#if defined(__GNUC__)
__attribute__((unused)) // where the assembly does it all
#endif
static inline int32_t utvm_scale_doubled(int32_t doubled, int32_t multiplier, int32_t offset,
                                         int32_t shift) {
    int64_t product = (int64_t)doubled * multiplier + INT64_C(0x80000000);
    int32_t sum = utvm_add((int32_t)(product >> 32), utvm_add(offset, doubled >> 31));
    return utvm_clamp(sum >> shift, -128, 127);
}
