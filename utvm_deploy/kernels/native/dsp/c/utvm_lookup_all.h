static inline void utvm_lookup_all(const void *input, const void *table, void *output,
                                   int32_t count) {
    const int32_t whole = count & ~7;
    if (whole > 0) {
        utvm_lookup_eights(input, table, output, whole);
    }
    utvm_lookup((const uint8_t *)input + whole, table, (uint8_t *)output + whole, count - whole);
}
