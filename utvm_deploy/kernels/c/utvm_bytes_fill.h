// Keeps compilers from making a call of memcpy or memset out of a loop: on small cores those go
// byte by byte.
#if !defined(UTVM_IN_PLACE) && defined(__GNUC__)
#define UTVM_IN_PLACE __asm__ volatile("")
#elif !defined(UTVM_IN_PLACE)
#define UTVM_IN_PLACE (void)0
#endif

// Sets bytes; none is fine too.
static inline int8_t *utvm_bytes_fill(int8_t *to, int32_t value, int32_t count) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    int8_t *at = to;
    __asm__ volatile("vdup.8 q0, %[value]\n"
                     "wlstp.8 lr, %[count], 2f\n"
                     "1:\n"
                     "vstrb.8 q0, [%[at]], #16\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [at] "+r"(at)
                     : [count] "r"(count), [value] "r"(value)
                     : "lr", "q0", "cc", "memory");
#else
    const uint32_t word = (uint32_t)(uint8_t)value * 0x01010101u;
    int32_t n = 0;
    for (; n + 16 <= count; n += 16) {
        __builtin_memcpy(to + n, &word, 4);
        __builtin_memcpy(to + n + 4, &word, 4);
        __builtin_memcpy(to + n + 8, &word, 4);
        __builtin_memcpy(to + n + 12, &word, 4);
    }
    for (; n < count; n++) {
        to[n] = (int8_t)value;
        UTVM_IN_PLACE;
    }
#endif
    return to + count;
}
