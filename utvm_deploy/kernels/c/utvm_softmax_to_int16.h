// SOFTMAX of rows of int8 to int16, of which -32768 stands for 0.
static inline void utvm_softmax_to_int16(const int8_t *input, const int32_t *exponentials,
                                         int16_t *output, int32_t rows, int32_t depth) {
    for (int32_t row = 0; row < rows; row++, input += depth, output += depth) {
        const int32_t *powers = exponentials + utvm_largest_byte(input, depth, 0);
        const uint32_t total = utvm_softmax_total(input, powers, depth);
        const uint32_t doubled = 2u * (uint32_t)utvm_reciprocal((int32_t)total);
        const int32_t bits = 26 - utvm_leading_zeros(total);
        for (int32_t i = 0; i < depth; i++) {
            output[i] =
                (int16_t)(utvm_softmax_part(doubled, powers[-input[i]], bits, 65535) - 32768);
        }
    }
}
