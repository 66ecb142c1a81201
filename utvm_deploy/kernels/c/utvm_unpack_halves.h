// Unpacks weights of four bits to `bytes` of int8, a multiple of eight. Both places are those of
// words. Each packed word has two words of bytes in the halves of its own; 8 is added to each.
UTVM_ONCE static void utvm_unpack_halves(const int8_t *packed, int8_t *to, int32_t bytes) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    if (bytes >= 32) { // four packed words at a time
        __asm__ volatile("vmov.i8 q2, #15\n"
                         "vmov.i8 q3, #8\n"
                         "dls lr, %[turns]\n"
                         "1:\n"
                         "vldrw.u32 q1, [%[packed]], #16\n"
                         "vand q0, q1, q2\n"
                         "vshr.u8 q1, q1, #4\n"
                         "vsub.i8 q0, q0, q3\n"
                         "vsub.i8 q1, q1, q3\n"
                         "vst20.32 {q0, q1}, [%[to]]\n"
                         "vst21.32 {q0, q1}, [%[to]]!\n"
                         "le lr, 1b\n"
                         : [packed] "+r"(packed), [to] "+r"(to)
                         : [turns] "r"(bytes >> 5)
                         : "lr", "q0", "q1", "q2", "q3", "memory");
        bytes &= 31;
    }
#endif
    for (; bytes > 0; bytes -= 8, packed += 4, to += 8) {
        uint32_t both, words[2];
        __builtin_memcpy(&both, __builtin_assume_aligned(packed, 4), 4);
        words[0] = both & 0x0F0F0F0Fu;
        words[1] = both >> 4 & 0x0F0F0F0Fu;
        for (int32_t n = 0; n < 2; n++) {
            // No byte borrows from the next one while its highest bit is set.
            words[n] = ((words[n] | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
        }
        __builtin_memcpy(__builtin_assume_aligned(to, 4), words, 8);
    }
}
