// SOFTMAX of rows of int8; `exponentials` has exp(-difference) as Q0.31.

// A power's share of the sum, from 0 to `most`. `doubled` is twice the sum's
// reciprocal; `bits` at most 31.
static inline int32_t utvm_softmax_part(uint32_t doubled, int32_t power, int32_t bits,
                                        int32_t most) {
    uint32_t share = (uint32_t)(((uint64_t)doubled * (uint32_t)power + 0x80000000u) >> 32);
    return utvm_clamp((int32_t)(((share >> bits) + 1u) >> 1), 0, most);
}

static inline uint32_t utvm_softmax_total(const int8_t *input, const int32_t *powers,
                                          int32_t depth) {
    // As Q12.19, half up.
    const uint32_t half = 1u << 11;
    uint32_t even = 0;
    uint32_t odd = 0;
    int32_t i = 0;
    for (; i + 4 <= depth; i += 4) {
        uint32_t word = utvm_word(input + i);
        even += ((uint32_t)powers[-utvm_byte(word, 0)] + half) >> 12;
        odd += ((uint32_t)powers[-utvm_byte(word, 8)] + half) >> 12;
        even += ((uint32_t)powers[-utvm_byte(word, 16)] + half) >> 12;
        odd += ((uint32_t)powers[-utvm_byte(word, 24)] + half) >> 12;
    }
    for (; i < depth; i++) {
        even += ((uint32_t)powers[-input[i]] + half) >> 12;
    }
    return even + odd;
}
