// The products of a vector with rows of packed weights; 508 products of 16 by 8
// bits fit 32.
static inline void utvm_wide_rows(const int16_t *vector, const int8_t *weights, int32_t pitch,
                                  int32_t rows, int64_t *totals) {
    for (int32_t row = 0; row < rows; row += 4, weights += 4 * pitch, totals += 4) {
        totals[0] = totals[1] = totals[2] = totals[3] = 0;
        for (int32_t first = 0; first < pitch; first += 508) {
            int32_t sums[4];
            int32_t count = pitch - first < 508 ? pitch - first : 508;
            utvm_wide_four(vector + first, weights + first, pitch, count, sums);
            for (int32_t i = 0; i < 4; i++) {
                totals[i] += sums[i];
            }
        }
    }
}
