// The products of a vector with rows that lie one after the other.
static inline void utvm_dot_rows(const int8_t *vector, const int8_t *matrix, int32_t depth,
                                 int32_t rows, int32_t *sums) {
    const int32_t whole = depth & ~3;
    const int32_t fours = whole > 0 ? rows & ~3 : 0;
    for (int32_t row = 0; row < fours; row += 4) {
        utvm_dot_four(vector, matrix + row * depth, depth, whole, sums + row);
    }
    for (int32_t row = fours; row < rows; row++) {
        sums[row] = 0;
    }
    for (int32_t row = 0; row < rows; row++) {
        int32_t total = sums[row];
        for (int32_t i = row < fours ? whole : 0; i < depth; i++) {
            total += vector[i] * matrix[row * depth + i];
        }
        sums[row] = total;
    }
}
