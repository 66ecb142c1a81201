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
    for (int32_t i = 0; i < (count & 3); i++) {
        total += from[i];
    }
#endif
    return total;
}

#if !(defined(__ARM_FEATURE_MVE) && defined(__GNUC__))
// Adds up to 256 rows of 4 * `words` columns each, at most 16, to their totals.
static inline void utvm_sum_columns(const int8_t *from, int32_t rows, int32_t pitch, int32_t words,
                                    int32_t *totals) {
    uint32_t even[4] = {0, 0, 0, 0};
    uint32_t odd[4] = {0, 0, 0, 0};
    for (int32_t i = 0; i < rows; i++, from += pitch) {
        for (int32_t n = 0; n < words; n++) {
            uint32_t word = utvm_word(from + 4 * n) ^ 0x80808080u;
            even[n] += word & 0x00FF00FFu;
            odd[n] += (word >> 8) & 0x00FF00FFu;
        }
    }
    for (int32_t n = 0; n < words; n++) {
        totals[4 * n] += (int32_t)(even[n] & 0xFFFFu) - 128 * rows;
        totals[4 * n + 1] += (int32_t)(odd[n] & 0xFFFFu) - 128 * rows;
        totals[4 * n + 2] += (int32_t)(even[n] >> 16) - 128 * rows;
        totals[4 * n + 3] += (int32_t)(odd[n] >> 16) - 128 * rows;
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
    const int32_t sixteens = columns & ~15;
    const int32_t fours = columns & ~3;
    for (int32_t row = 0; row < rows; row += 32, from += 32 * pitch) {
        const int32_t some = rows - row > 32 ? 32 : rows - row;
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

static inline int8_t utvm_mean_of(int32_t total, int32_t offset, int32_t multiplier, int32_t shift,
                                  int32_t zero_point) {
    total = utvm_requantize(utvm_add(total, offset), multiplier, shift);
    return (int8_t)utvm_clamp(total + zero_point, -128, 127);
}

// Means over the middle one of three dimensions.
static inline void utvm_mean(const int8_t *input, int32_t offset, int32_t multiplier, int32_t shift,
                             int32_t zero_point, int8_t *output, int32_t outer, int32_t count,
                             int32_t inner) {
    for (int32_t n = 0; n < outer; n++, input += count * inner, output += inner) {
        if (inner == 1) {
            int32_t total = utvm_sum_run(input, count);
            output[0] = utvm_mean_of(total, offset, multiplier, shift, zero_point);
            continue;
        }
        for (int32_t column = 0; column < inner; column += 64) {
            const int32_t some = inner - column > 64 ? 64 : inner - column;
            int32_t totals[64];
            utvm_sum_block(input + column, count, some, inner, totals);
            for (int32_t i = 0; i < some; i++) {
                output[column + i] = utvm_mean_of(totals[i], offset, multiplier, shift, zero_point);
            }
        }
    }
}
