// The products of a vector with rows of int4, which are unpacked eight at a time.
static inline void utvm_dot_halves(const int8_t *vector, const int8_t *packed, int32_t depth,
                                   int32_t rows, int32_t *sums, int8_t *unpacked) {
    for (int32_t row = 0; row < rows; row += 8, packed += 4 * depth) {
        utvm_unpack_halves(packed, unpacked, 8 * depth);
        utvm_dot_rows(vector, unpacked, depth, rows - row < 8 ? rows - row : 8, sums + row);
    }
}
