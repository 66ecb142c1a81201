// Two elements at a time multiply by 16 bits, which only absurd scales exceed.
static inline void utvm_sigmoids16(const int16_t *input, const int32_t *table, int32_t multiplier,
                                   int32_t half, int32_t shift, int16_t *output, int32_t count) {
    int32_t pairs = multiplier > INT16_MAX ? 0 : count / 2;
    if (pairs > 0) {
        utvm_sigmoid_pairs(input, table, multiplier, half, shift, output, pairs);
    }
    for (int32_t i = 2 * pairs; i < count; i++) {
        output[i] = (int16_t)utvm_sigmoid16(table, (input[i] * multiplier + half) >> shift);
    }
}
