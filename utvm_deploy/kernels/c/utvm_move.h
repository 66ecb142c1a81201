// Copies bytes to a place that may begin before them and overlap them: loads of a block come before
// its stores, and blocks are copied in their order. Four variables stay in registers, which an
// array of four words does not. The casts are for C++.
static inline void utvm_move(int8_t *to, const int8_t *from, int32_t count) {
    if ((((uintptr_t)to | (uintptr_t)from) & 3u) == 0) {
        for (; count >= 16; count -= 16, to += 16, from += 16) {
            const int8_t *words = (const int8_t *)__builtin_assume_aligned(from, 4);
            int8_t *there = (int8_t *)__builtin_assume_aligned(to, 4);
            uint32_t first, second, third, fourth;
            __builtin_memcpy(&first, words, 4);
            __builtin_memcpy(&second, words + 4, 4);
            __builtin_memcpy(&third, words + 8, 4);
            __builtin_memcpy(&fourth, words + 12, 4);
            __builtin_memcpy(there, &first, 4);
            __builtin_memcpy(there + 4, &second, 4);
            __builtin_memcpy(there + 8, &third, 4);
            __builtin_memcpy(there + 12, &fourth, 4);
        }
    }
    for (; count > 0; count--) {
        *to++ = *from++;
    }
}
