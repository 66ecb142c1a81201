// utvm_bytes_copy.h and utvm_bytes_fill.h for cores that load and store words at multiples of four
// only. There, GCC calls memcpy for each copy of several bytes, and memcpy goes byte by byte.
#if !defined(UTVM_IN_PLACE) && defined(__GNUC__)
#define UTVM_IN_PLACE __asm__ volatile("")
#elif !defined(UTVM_IN_PLACE)
#define UTVM_IN_PLACE (void)0
#endif
#define UTVM_ALIGNED(address) __builtin_assume_aligned(address, 4)

// Copies bytes; none is fine too. If both sides are equally aligned, it copies words.
static inline int8_t *utvm_bytes_copy(int8_t *to, const int8_t *from, int32_t count) {
    int8_t *const end = to + count;
    if ((((uintptr_t)to ^ (uintptr_t)from) & 3u) == 0) {
        while (to < end && ((uintptr_t)to & 3u) != 0) {
            *to++ = *from++;
            UTVM_IN_PLACE;
        }
        for (; end - to >= 16; to += 16, from += 16) {
            __builtin_memcpy(UTVM_ALIGNED(to), UTVM_ALIGNED(from), 16);
            UTVM_IN_PLACE;
        }
        for (; end - to >= 4; to += 4, from += 4) {
            __builtin_memcpy(UTVM_ALIGNED(to), UTVM_ALIGNED(from), 4);
            UTVM_IN_PLACE;
        }
    }
    for (; end - to >= 4; to += 4, from += 4) {
        to[0] = from[0];
        to[1] = from[1];
        to[2] = from[2];
        to[3] = from[3];
        UTVM_IN_PLACE;
    }
    while (to < end) {
        *to++ = *from++;
        UTVM_IN_PLACE;
    }
    return end;
}

// Sets bytes; none is fine too.
static inline int8_t *utvm_bytes_fill(int8_t *to, int32_t value, int32_t count) {
    const uint32_t word = (uint32_t)(uint8_t)value * 0x01010101u;
    int8_t *const end = to + count;
    while (to < end && ((uintptr_t)to & 3u) != 0) {
        *to++ = (int8_t)value;
        UTVM_IN_PLACE;
    }
    for (; end - to >= 4; to += 4) {
        __builtin_memcpy(UTVM_ALIGNED(to), &word, 4);
        UTVM_IN_PLACE;
    }
    while (to < end) {
        *to++ = (int8_t)value;
        UTVM_IN_PLACE;
    }
    return end;
}
