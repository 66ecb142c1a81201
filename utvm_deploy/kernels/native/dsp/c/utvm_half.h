// A weight of four bits. Each word holds two words of bytes: those of an even number in the lower
// halves of its bytes. Values are stored with 8 added.
#if defined(__GNUC__)
__attribute__((unused)) // where the assembly does it all
#endif
static inline int32_t utvm_half(const int8_t *packed, int32_t word, int32_t byte) {
    const int32_t both = (uint8_t)packed[word / 2 * 4 + byte];
    return (both >> (word % 2 * 4) & 15) - 8;
}
