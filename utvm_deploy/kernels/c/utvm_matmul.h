// A matrix product of rows by rows, both of `depth` bytes; column_sums are for
// the rows of the right side.
static inline void utvm_matmul(const int8_t *left, const int8_t *right, int32_t left_zero_point,
                               int32_t right_zero_point, int32_t multiplier, int32_t shift,
                               int32_t zero_point, int32_t low, int32_t high, int8_t *output,
                               int32_t *sums, int32_t rows, int32_t depth, int32_t columns) {
    int32_t *column_sums = sums + columns;
    // Shifts for which utvm_scale is the same, as sums stay below 2^30.
    const int32_t is_short = shift <= -1 && shift >= -22;
    const int32_t right_shift = is_short ? -shift : 1;
    const int32_t offset =
        (int32_t)((uint32_t)zero_point << right_shift) + (1 << (right_shift - 1));
    for (int32_t column = 0; column < columns; column++) {
        int32_t total = utvm_sum_run(right + column * depth, depth);
        column_sums[column] = left_zero_point * (depth * right_zero_point - total);
    }
    for (int32_t row = 0; row < rows; row++, left += depth, output += columns) {
        const int32_t row_sum = right_zero_point * utvm_sum_run(left, depth);
        utvm_dot_rows(left, right, depth, columns, sums);
        for (int32_t column = 0; column < columns; column++) {
            int32_t total = sums[column] + column_sums[column] - row_sum;
            total = is_short ? utvm_scale(total, multiplier, offset, right_shift)
                             : utvm_requantize(total, multiplier, shift) + zero_point;
            output[column] = (int8_t)utvm_clamp(total, low, high);
        }
    }
}
