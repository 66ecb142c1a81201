// output[i] = the entry for the byte input[i] in the table of its channel. The channels lie between
// "outer" and "inner" dimensions. Outputs of bytes may lie on the input.
static inline void NAME(const void *input, const NUMBER *tables, NUMBER *output, int32_t outer,
                        int32_t channels, int32_t inner) {
    const uint8_t *from = (const uint8_t *)input;
    for (int32_t o = 0; o < outer; o++) {
        for (int32_t c = 0; c < channels; c++) {
            const NUMBER *table = tables + 256 * c;
            for (int32_t i = 0; i < inner; i++) {
                *output++ = table[*from++];
            }
        }
    }
}
