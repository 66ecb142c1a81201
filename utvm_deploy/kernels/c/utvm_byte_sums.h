// Sums of bytes by words: each byte plus 128 is added to one of two halves of a
// word, which hold 256 of them.
static inline int32_t utvm_sum_run(const int8_t *from, int32_t count) {
    int32_t total = 0;
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    __asm__ volatile("wlstp.8 lr, %[count], 2f\n"
                     "1:\n"
                     "vldrb.8 q0, [%[from]], #16\n"
                     "vaddva.s8 %[total], q0\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [from] "+r"(from), [total] "+Te"(total)
                     : [count] "r"(count)
                     : "lr", "q0", "cc", "memory");
#elif defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    // The difference of four bytes plus 128 to zero is their sum.
    uint32_t sums[2] = {0, 0};
    const int8_t *const end = from + (count & ~15);
    for (; from < end; from += 16) {
        for (int32_t n = 0; n < 4; n++) {
            uint32_t word = utvm_word(from + 4 * n) ^ 0x80808080u;
            __asm__("usada8 %0, %1, %2, %0" : "+r"(sums[n & 1]) : "r"(word), "r"(0));
        }
    }
    for (int32_t i = count & 12; i > 0; i -= 4, from += 4) {
        uint32_t word = utvm_word(from) ^ 0x80808080u;
        __asm__("usada8 %0, %1, %2, %0" : "+r"(sums[0]) : "r"(word), "r"(0));
    }
    total = (int32_t)(sums[0] + sums[1]) - 128 * (count & ~3);
#else
    for (int32_t left = count; left > 0; left -= 1024) {
        int32_t words = (left > 1024 ? 1024 : left) >> 2;
        uint32_t even = 0;
        uint32_t odd = 0;
        for (int32_t i = 0; i < words; i++, from += 4) {
            uint32_t word = utvm_word(from) ^ 0x80808080u;
            even += word & 0x00FF00FFu;
            odd += (word >> 8) & 0x00FF00FFu;
        }
        total += (int32_t)((even & 0xFFFFu) + (even >> 16) + (odd & 0xFFFFu) + (odd >> 16));
        total -= 512 * words;
    }
#endif
#if !(defined(__ARM_FEATURE_MVE) && defined(__GNUC__))
    for (int32_t i = 0; i < (count & 3); i++) {
        total += from[i];
    }
#endif
    return total;
}

#if !(defined(__ARM_FEATURE_MVE) && defined(__GNUC__))
// Adds four bytes to a half each of two words, as numbers with signs or plus 128.
static inline void utvm_add_halves(const int8_t *from, uint32_t *even, uint32_t *odd) {
    uint32_t word = utvm_word(from);
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    __asm__("sxtab16 %0, %0, %1" : "+r"(*even) : "r"(word));
    __asm__("sxtab16 %0, %0, %1, ror #8" : "+r"(*odd) : "r"(word));
#else
    word ^= 0x80808080u;
    *even += word & 0x00FF00FFu;
    *odd += (word >> 8) & 0x00FF00FFu;
#endif
}

// A half of such a word: the sum of so many bytes, at most 256.
static inline int32_t utvm_half_of(uint32_t word, int32_t count) {
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    (void)count;
    return (int16_t)word;
#else
    return (int32_t)(word & 0xFFFFu) - 128 * count;
#endif
}

// Adds up to 256 rows of 4 * `words` columns each, at most 16, to their totals.
static inline void utvm_sum_columns(const int8_t *from, int32_t rows, int32_t pitch, int32_t words,
                                    int32_t *totals) {
    uint32_t even[4] = {0, 0, 0, 0};
    uint32_t odd[4] = {0, 0, 0, 0};
    for (int32_t i = 0; i < rows; i++, from += pitch) {
        for (int32_t n = 0; n < words; n++) {
            utvm_add_halves(from + 4 * n, even + n, odd + n);
        }
    }
    for (int32_t n = 0; n < words; n++) {
        totals[4 * n] += utvm_half_of(even[n], rows);
        totals[4 * n + 1] += utvm_half_of(odd[n], rows);
        totals[4 * n + 2] += utvm_half_of(even[n] >> 16, rows);
        totals[4 * n + 3] += utvm_half_of(odd[n] >> 16, rows);
    }
}
#endif

// Sums of `columns` columns, by rows that a small cache keeps.
static inline void utvm_sum_block(const int8_t *from, int32_t rows, int32_t columns, int32_t pitch,
                                  int32_t *totals) {
    for (int32_t column = 0; column < columns; column++) {
        totals[column] = 0;
    }
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    // Eight columns at a time; a halfword holds the sum of 256 bytes.
    for (int32_t row = 0; row < rows; row += 256, from += 256 * pitch) {
        for (int32_t column = 0; column < columns; column += 8) {
            const int8_t *at = from + column;
            const int32_t left = columns - column;
            int16_t sums[8];
            uint32_t predicate; // the compiler's, which it cannot be told to save
            __asm__ volatile("vmrs %[predicate], vpr\n"
                             "vctp.16 %[left]\n"
                             "vmov.i32 q1, #0\n"
                             "dls lr, %[rows]\n"
                             "1:\n"
                             "vpst\n"
                             "vldrbt.s16 q0, [%[at]]\n"
                             "add %[at], %[pitch]\n"
                             "vadd.i16 q1, q1, q0\n"
                             "le lr, 1b\n"
                             "vstrh.16 q1, [%[sums]]\n"
                             "vmsr vpr, %[predicate]\n"
                             : [at] "+l"(at), [predicate] "=&r"(predicate)
                             : [left] "r"(left), [rows] "r"(rows - row > 256 ? 256 : rows - row),
                               [pitch] "r"(pitch), [sums] "r"(sums)
                             : "lr", "q0", "q1", "cc", "memory");
            for (int32_t i = 0; i < 8 && i < left; i++) {
                totals[column + i] += sums[i];
            }
        }
    }
#else
#if defined(__ARM_FEATURE_UNALIGNED)
    if (columns == pitch && columns < 4) {
        // Some rows, one after the other, are one row of whole words.
        const int32_t together = columns == 2 ? 2 : 4, width = together * columns;
        int32_t sums[12] = {0};
        for (; rows >= together;) {
            const int32_t some = rows / together > 256 ? 256 : rows / together;
            utvm_sum_columns(from, some, width, width >> 2, sums);
            from += some * width;
            rows -= some * together;
        }
        for (int32_t i = 0, column = 0; i < width; i++) {
            totals[column] += sums[i];
            column = column + 1 < columns ? column + 1 : 0;
        }
    }
#endif
    const int32_t sixteens = columns & ~15;
    const int32_t fours = columns & ~3;
    const int32_t most = pitch < 16 ? 256 : pitch > 512 ? 8 : 4096 / pitch;
    for (int32_t left = rows; left > 0; left -= most, from += most * pitch) {
        const int32_t some = left > most ? most : left;
        for (int32_t column = 0; column < sixteens; column += 16) {
            utvm_sum_columns(from + column, some, pitch, 4, totals + column);
        }
        for (int32_t column = sixteens; column < fours; column += 4) {
            utvm_sum_columns(from + column, some, pitch, 1, totals + column);
        }
        for (int32_t column = fours; column < columns; column++) {
            for (int32_t i = 0; i < some; i++) {
                totals[column] += from[i * pitch + column];
            }
        }
    }
#endif
}
