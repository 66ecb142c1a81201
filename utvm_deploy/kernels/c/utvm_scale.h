// What the assembly computes in five instructions (add, add, smmlar, asr, ssat): value *
// multiplier * 2^-(31 + shift), rounded as utvm_requantize does, plus the output's zero point, as
// int8. `offset` is (zero point << shift) + (1 << (shift - 1)).
#if defined(__GNUC__)
__attribute__((unused)) // where the assembly does it all
#endif
static inline int32_t utvm_scale(int32_t value, int32_t multiplier, int32_t offset, int32_t shift) {
    int32_t doubled = utvm_add(value, value);
    int64_t product = (int64_t)doubled * multiplier + INT64_C(0x80000000);
    int32_t sum = utvm_add((int32_t)(product >> 32), utvm_add(offset, value >> 31));
    return utvm_clamp(sum >> shift, -128, 127);
}
