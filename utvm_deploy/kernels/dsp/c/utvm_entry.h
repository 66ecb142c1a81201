// The entry of a signed byte in a table of 256.
#if defined(__GNUC__)
__attribute__((unused)) // where the assembly does it all
#endif
static inline int32_t utvm_entry(const int32_t *table, int32_t value) {
    return table[value & 255];
}
