// a * m in two words; m is not negative. Of the four products of halves none overflows, and the
// sums of what they carry do not either: |a1 * m0| is at most 2^15 * (2^16 - 1).
static inline uint32_t utvm_plain_multiply(int32_t a, int32_t m, int32_t *high) {
    const uint32_t a0 = (uint32_t)a & 0xffffu, m0 = (uint32_t)m & 0xffffu;
    const int32_t a1 = a >> 16, m1 = m >> 16;
    const uint32_t bottom = a0 * m0;
    const int32_t middle = a1 * (int32_t)m0 + (int32_t)(bottom >> 16);
    const uint32_t other = a0 * (uint32_t)m1 + ((uint32_t)middle & 0xffffu);
    *high = a1 * m1 + (middle >> 16) + (int32_t)(other >> 16);
    return (other << 16) | (bottom & 0xffffu);
}
