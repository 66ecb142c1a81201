// LOGISTIC and TANH of int16 on lines between the entries of a table, bit for
// bit as LiteRT's reference kernels: tanh(x) = 2 sigmoid(2 x) - 1.

// The function of a value of 1/12288, of which 2^bits steps are one line: 9 for
// LOGISTIC, 8 for TANH. A word of the table has the first value of its line above 1/2, and
// the rise in its upper half. The function is odd around its middle, so the
// negative side is the complement.
static inline int32_t utvm_sigmoid16(const int32_t *table, int32_t value) {
    const int32_t bits = utvm_bits;
    int32_t sign = value >> 31;
    int32_t magnitude = (value ^ sign) - sign;
    int32_t last = (256 << bits) - 1;
    magnitude = magnitude > last ? last : magnitude;
    int32_t word = table[magnitude >> bits];
    int32_t share = (magnitude & ((1 << bits) - 1)) * (word >> 16);
    share += (word & 0xFFFF) << bits;
    return bits == 9 ? ((share ^ sign) + (1 << 24) + (1 << 9)) >> 10
                     : ((share ^ sign) + (1 << 7)) >> 8;
}
