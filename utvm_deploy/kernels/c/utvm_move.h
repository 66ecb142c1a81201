// Copies bytes to a place that may begin before them and overlap them: loads of a block come before
// its stores, and blocks are copied in their order.
static inline void utvm_move(int8_t *to, const int8_t *from, int32_t count) {
    if ((((uintptr_t)to | (uintptr_t)from) & 3u) == 0) {
        for (; count >= 16; count -= 16, to += 16, from += 16) {
            uint32_t words[4];
            __builtin_memcpy(words, __builtin_assume_aligned(from, 4), 16);
            __builtin_memcpy(__builtin_assume_aligned(to, 4), words, 16);
        }
    }
    for (; count > 0; count--) {
        *to++ = *from++;
    }
}
