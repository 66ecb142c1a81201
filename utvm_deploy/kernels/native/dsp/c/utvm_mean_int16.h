// Adds two columns of int16 for each word of each row to their totals.
static inline void utvm_sum_pairs(const int16_t *from, int32_t rows, int32_t pitch, int32_t words,
                                  int32_t *totals) {
    uint32_t low[4] = {0, 0, 0, 0};
    uint32_t high[4] = {0, 0, 0, 0};
    for (int32_t i = 0; i < rows; i++, from += pitch) {
        for (int32_t n = 0; n < words; n++) {
            uint32_t pair;
            __builtin_memcpy(&pair, from + 2 * n, 4);
            low[n] += (uint32_t)(int32_t)(int16_t)pair;
            high[n] += (uint32_t)((int32_t)pair >> 16);
        }
    }
    for (int32_t n = 0; n < words; n++) {
        totals[2 * n] = utvm_add(totals[2 * n], (int32_t)low[n]);
        totals[2 * n + 1] = utvm_add(totals[2 * n + 1], (int32_t)high[n]);
    }
}

// Sums of `columns` columns, at most 64, by as many rows as a small cache keeps.
static inline void utvm_sum_int16(const int16_t *from, int32_t rows, int32_t columns, int32_t pitch,
                                  int32_t *totals) {
    for (int32_t column = 0; column < columns; column++) {
        totals[column] = 0;
    }
    const int32_t most = pitch < 16 ? 128 : pitch > 256 ? 8 : 2048 / pitch;
    for (int32_t left = rows; left > 0; left -= most, from += most * pitch) {
        const int32_t some = left > most ? most : left;
        int32_t column = 0;
        for (; column + 8 <= columns; column += 8) {
            utvm_sum_pairs(from + column, some, pitch, 4, totals + column);
        }
        for (; column + 2 <= columns; column += 2) {
            utvm_sum_pairs(from + column, some, pitch, 1, totals + column);
        }
        for (int32_t i = 0; column < columns && i < some; i++) {
            totals[column] = utvm_add(totals[column], from[i * pitch + column]);
        }
    }
}

// Means of int16 over the middle one of three dimensions.
static inline void utvm_mean_int16(const int16_t *input, int32_t offset, int32_t multiplier,
                                   int32_t shift, int32_t zero_point, int16_t *output,
                                   int32_t outer, int32_t count, int32_t inner) {
    for (int32_t n = 0; n < outer; n++, input += count * inner, output += inner) {
        for (int32_t column = 0; column < inner; column += 64) {
            const int32_t some = inner - column > 64 ? 64 : inner - column;
            int32_t totals[64];
            if (inner == 1) { // two halves of a row are columns
                int32_t halves[2] = {0, 0};
                utvm_sum_pairs(input, count >> 1, 2, 1, halves);
                totals[0] = utvm_add(halves[0], halves[1]);
                totals[0] = utvm_add(totals[0], count & 1 ? input[count - 1] : 0);
            } else {
                utvm_sum_int16(input + column, count, some, inner, totals);
            }
            for (int32_t i = 0; i < some; i++) {
                int32_t mean = utvm_requantize(utvm_add(totals[i], offset), multiplier, shift);
                mean = utvm_clamp(mean + zero_point, -32768, 32767);
                output[column + i] = (int16_t)mean;
            }
        }
    }
}
