// SOFTMAX of rows of int8 to int8.

// A power's share of the sum as a byte, of which -128 stands for 0.
static inline uint32_t utvm_softmax_share(uint32_t doubled, int32_t power, int32_t bits) {
    return (uint32_t)utvm_softmax_part(doubled, power, bits, 255) ^ 0x80u;
}

// All shares, one by one.
static inline void utvm_softmax_few(const int8_t *input, const int32_t *powers, int8_t *output,
                                    int32_t depth, uint32_t doubled, int32_t bits) {
    const int32_t whole = depth & ~3;
    for (int32_t i = 0; i < whole; i += 4) {
        uint32_t word = utvm_word(input + i);
        uint32_t a = utvm_softmax_share(doubled, powers[-utvm_byte(word, 0)], bits);
        uint32_t b = utvm_softmax_share(doubled, powers[-utvm_byte(word, 8)], bits);
        uint32_t c = utvm_softmax_share(doubled, powers[-utvm_byte(word, 16)], bits);
        uint32_t d = utvm_softmax_share(doubled, powers[-utvm_byte(word, 24)], bits);
        utvm_store_word(output + i, a | b << 8 | c << 16 | d << 24);
    }
    for (int32_t i = whole; i < depth; i++) {
        output[i] = (int8_t)utvm_softmax_share(doubled, powers[-input[i]], bits);
    }
}

// The output may lie on the input.
static inline void utvm_softmax(const int8_t *input, const int32_t *exponentials, int8_t *output,
                                int32_t rows, int32_t depth) {
    for (int32_t row = 0; row < rows; row++, input += depth, output += depth) {
        const int32_t largest = utvm_largest_byte(input, depth, 0);
        const uint32_t total = utvm_softmax_total(input, exponentials + largest, depth);
        const uint32_t doubled = 2u * (uint32_t)utvm_reciprocal((int32_t)total);
        // 12 - leading zeros integer bits of the sum; 31 - 8 of a Q0.31 are
        // below an int8. Beyond 31 nothing is left of any quotient.
        int32_t bits = 34 - utvm_leading_zeros(total);
        bits = bits > 31 ? 31 : bits;
        // With as many shares in the table as bytes in the row, the table does not pay.
        if (depth < 64 ||
            (depth < 256 && utvm_softmax_share(doubled, exponentials[depth], bits) != 0x80u)) {
            utvm_softmax_few(input, exponentials + largest, output, depth, doubled, bits);
            continue;
        }
        // Most bytes come more than once: each difference's share, as far as
        // there are any.
        uint8_t shares[256];
        int32_t d = 0;
        for (uint32_t share = 0; d < 256 && share != 0x80u; d++) {
            share = utvm_softmax_share(doubled, exponentials[d], bits);
            shares[d] = (uint8_t)share;
        }
        for (; d < 256; d++) {
            shares[d] = 0x80u;
        }
        const uint8_t *share = shares + largest;
        int32_t i = 0;
        for (; i + 4 <= depth; i += 4) {
            uint32_t word = utvm_word(input + i);
            uint32_t low = share[-utvm_byte(word, 0)] | (uint32_t)share[-utvm_byte(word, 8)] << 8;
            uint32_t high = share[-utvm_byte(word, 16)] | (uint32_t)share[-utvm_byte(word, 24)]
                                                              << 8;
            utvm_store_word(output + i, low | high << 16);
        }
        for (; i < depth; i++) {
            output[i] = (int8_t)share[-input[i]];
        }
    }
}
