// Products where the left side is below its zero point, numbers[7]; else a byte
// of the table.
static void utvm_prelu_words(const int8_t *left, const int8_t *right, const int32_t *numbers,
                             int8_t *output, int32_t count) {
    const uint8_t *table = (const uint8_t *)(numbers + 8);
    for (int32_t at = 0; at < count; at += 64) {
        const int32_t some = count - at < 64 ? count - at : 64;
        int8_t products[64];
        utvm_multiply_words(left + at, right + at, numbers, products, some);
        for (int32_t i = 0; i < some; i += 4) {
            uint32_t word = utvm_word(left + at + i);
            uint32_t made = utvm_word(products + i);
            for (int32_t bits = 0; bits < 32; bits += 8) {
                uint32_t positive = (uint32_t)table[(word >> bits) & 0xFFu] << bits;
                uint32_t kept = made & ~(0xFFu << bits);
                made = utvm_byte(word, bits) >= numbers[7] ? kept | positive : made;
            }
            utvm_store_word(output + at + i, made);
        }
    }
}
