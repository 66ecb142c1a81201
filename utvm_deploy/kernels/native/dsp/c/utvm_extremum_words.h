// The larger ones; or, all bits flipped by a numbers[7] of -1, the smaller ones.
static void utvm_extremum_words(const int8_t *left, const int8_t *right, const int32_t *numbers,
                                int8_t *output, int32_t count) {
    const uint32_t flip = (uint32_t)numbers[7];
    for (int32_t i = 0; i < count; i += 4) {
        uint32_t larger =
            utvm_larger_bytes(utvm_word(left + i) ^ flip, utvm_word(right + i) ^ flip);
        utvm_store_word(output + i, larger ^ flip);
    }
}
