// Of these functions kernels take what they need.

// Four bytes as one word.
__attribute__((unused)) static inline uint32_t utvm_word(const int8_t *from) {
    uint32_t word;
    __builtin_memcpy(&word, from, 4);
    return word;
}

__attribute__((unused)) static inline void utvm_store_word(int8_t *to, uint32_t word) {
    __builtin_memcpy(to, &word, 4);
}

// The byte that lies `bits` up in a word, as a signed number.
__attribute__((unused)) static inline int32_t utvm_byte(uint32_t word, int32_t bits) {
    return (int8_t)(word >> bits);
}

// The larger of each two bytes.
__attribute__((unused)) static inline uint32_t utvm_larger_bytes(uint32_t left, uint32_t right) {
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    uint32_t larger;
    __asm__("ssub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(larger) : "r"(left), "r"(right) : "cc");
    return larger;
#else
    uint32_t larger = 0;
    for (int32_t bits = 0; bits < 32; bits += 8) {
        uint32_t word = utvm_byte(left, bits) > utvm_byte(right, bits) ? left : right;
        larger |= word & (0xFFu << bits);
    }
    return larger;
#endif
}

// The largest of bytes; or, all bits flipped by -1, what was the smallest.
__attribute__((unused)) static inline int32_t utvm_largest_byte(const int8_t *from, int32_t count,
                                                                int32_t flip) {
    int32_t largest = from[0] ^ flip;
    const int32_t whole = count & ~3;
    if (whole > 0) {
        uint32_t word = utvm_word(from) ^ (uint32_t)flip;
        for (int32_t i = 4; i < whole; i += 4) {
            word = utvm_larger_bytes(word, utvm_word(from + i) ^ (uint32_t)flip);
        }
        for (int32_t bits = 0; bits < 32; bits += 8) {
            largest = utvm_byte(word, bits) > largest ? utvm_byte(word, bits) : largest;
        }
    }
    for (int32_t i = whole; i < count; i++) {
        largest = (from[i] ^ flip) > largest ? from[i] ^ flip : largest;
    }
    return largest;
}
