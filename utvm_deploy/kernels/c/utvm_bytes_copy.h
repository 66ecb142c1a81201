// Keeps compilers from making a call of memcpy or memset out of a loop: on small cores those go
// byte by byte.
#if !defined(UTVM_IN_PLACE) && defined(__GNUC__)
#define UTVM_IN_PLACE __asm__ volatile("")
#elif !defined(UTVM_IN_PLACE)
#define UTVM_IN_PLACE (void)0
#endif

// Copies bytes; none is fine too.
static inline int8_t *utvm_bytes_copy(int8_t *to, const int8_t *from, int32_t count) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    int8_t *at = to;
    __asm__ volatile("wlstp.8 lr, %[count], 2f\n"
                     "1:\n"
                     "vldrb.8 q0, [%[from]], #16\n"
                     "vstrb.8 q0, [%[at]], #16\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [at] "+r"(at), [from] "+r"(from)
                     : [count] "r"(count)
                     : "lr", "q0", "cc", "memory");
#else
    int8_t *at = to;
    for (int32_t n = count >> 4; n > 0; n--, at += 16, from += 16) {
        __builtin_memcpy(at, from, 16);
        UTVM_IN_PLACE;
    }
    if (count & 8) {
        __builtin_memcpy(at, from, 8);
        at += 8;
        from += 8;
    }
    if (count & 4) {
        __builtin_memcpy(at, from, 4);
        at += 4;
        from += 4;
    }
    if (count & 2) {
        __builtin_memcpy(at, from, 2);
        at += 2;
        from += 2;
    }
    if (count & 1) {
        *at = *from;
    }
#endif
    return to + count;
}
