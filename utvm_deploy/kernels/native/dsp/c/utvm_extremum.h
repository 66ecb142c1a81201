// The largest over the middle one of three dimensions; or, all bits flipped by -1, the smallest.
static inline void utvm_extremum(const int8_t *input, int8_t *output, int32_t outer, int32_t count,
                                 int32_t inner, int32_t flip) {
    if (inner == 1) {
        for (int32_t n = 0; n < outer; n++, input += count) {
            output[n] = (int8_t)(utvm_largest_byte(input, count, flip) ^ flip);
        }
        return;
    }
    for (int32_t n = 0; n < outer; n++, input += count * inner, output += inner) {
        int32_t column = 0;
        for (int32_t words = inner >= 16 ? 4 : 1; words > 0; words = words == 4 ? 1 : 0) {
            for (; column + 4 * words <= inner; column += 4 * words) {
                const int8_t *from = input + column;
                uint32_t largest[4] = {0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u};
                for (int32_t i = 0; i < count; i++, from += inner) {
                    for (int32_t k = 0; k < words; k++) {
                        uint32_t word = utvm_word(from + 4 * k) ^ (uint32_t)flip;
                        largest[k] = utvm_larger_bytes(largest[k], word);
                    }
                }
                for (int32_t k = 0; k < words; k++) {
                    utvm_store_word(output + column + 4 * k, largest[k] ^ (uint32_t)flip);
                }
            }
        }
        for (; column < inner; column++) {
            int32_t largest = -128;
            for (int32_t i = 0; i < count; i++) {
                const int32_t value = input[i * inner + column] ^ flip;
                largest = value > largest ? value : largest;
            }
            output[column] = (int8_t)(largest ^ flip);
        }
    }
}
