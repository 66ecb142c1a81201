// output[i] = table[input[i]], all of them bytes; the output may lie on the input.
static inline void utvm_lookup(const void *input, const void *table, void *output, int32_t count) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    __asm__ volatile("wlstp.8 lr, %[count], 2f\n"
                     "1:\n"
                     "vldrb.8 q0, [%[from]], #16\n"
                     "vldrb.u8 q1, [%[table], q0]\n"
                     "vstrb.8 q1, [%[to]], #16\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [from] "+r"(input), [to] "+r"(output)
                     : [count] "r"(count), [table] "r"(table)
                     : "lr", "q0", "q1", "cc", "memory");
#else
    const uint8_t *from = (const uint8_t *)input;
    const uint8_t *entry = (const uint8_t *)table;
    uint8_t *to = (uint8_t *)output;
    int32_t i = 0;
    for (; i + 4 <= count; i += 4) {
        uint32_t word;
        __builtin_memcpy(&word, from + i, 4);
        uint32_t low = entry[word & 0xFFu] | (uint32_t)entry[(word >> 8) & 0xFFu] << 8;
        uint32_t high = entry[(word >> 16) & 0xFFu] | (uint32_t)entry[word >> 24] << 8;
        word = low | high << 16;
        __builtin_memcpy(to + i, &word, 4);
    }
    for (; i < count; i++) {
        to[i] = entry[from[i]];
    }
#endif
}
