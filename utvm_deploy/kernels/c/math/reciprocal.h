// 2^62 / value, where value has bit 31 set: a division of 16 bits, and one step
// of Newton and Raphson. Its relative error is at most 2^-28.
static inline uint32_t utvm_reciprocal_of(uint32_t value) {
    const uint32_t first = (0xffffffffu / ((value >> 16) + 1u)) << 14;
    const int64_t error = (int64_t)(((uint64_t)1 << 62) - (uint64_t)value * first);
    const int64_t step = ((int64_t)first * (int32_t)(error >> 18)) >> 44;
    return (uint32_t)(first + step);
}
