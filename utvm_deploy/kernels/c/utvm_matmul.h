// output[i] = utvm_scale(sums[i] + others[i] + shared).
static inline void utvm_scale_run(const int32_t *sums, const int32_t *others, int32_t shared,
                                  int32_t multiplier, int32_t offset, int32_t shift, int8_t *output,
                                  int32_t count) {
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
    __asm__ volatile("vmov.i32 q2, #127\n"
                     "vmvn q3, q2\n"
                     "wlstp.32 lr, %[count], 2f\n"
                     "1:\n"
                     "vldrw.32 q0, [%[sums]], #16\n"
                     "vldrw.32 q1, [%[others]], #16\n"
                     "vadd.i32 q0, q0, %[shared]\n"
                     "vadd.i32 q0, q0, q1\n"
                     "vqrdmulh.s32 q1, q0, %[multiplier]\n"
                     "vshr.s32 q0, q0, #31\n"
                     "vadd.i32 q1, q1, %[offset]\n"
                     "vadd.i32 q1, q1, q0\n"
                     "vshl.s32 q1, %[shift]\n"
                     "vmin.s32 q1, q1, q2\n"
                     "vmax.s32 q1, q1, q3\n"
                     "vstrb.32 q1, [%[output]], #4\n"
                     "letp lr, 1b\n"
                     "2:\n"
                     : [sums] "+r"(sums), [others] "+r"(others), [output] "+l"(output)
                     : [shared] "r"(shared), [multiplier] "r"(multiplier), [offset] "r"(offset),
                       [shift] "r"(-shift), [count] "r"(count)
                     : "lr", "q0", "q1", "q2", "q3", "cc", "memory");
#else
    for (int32_t i = 0; i < count; i++) {
        int32_t total = sums[i] + others[i] + shared;
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
        __asm__("smmlar %0, %1, %2, %3"
                : "=r"(total)
                : "r"(total + total), "r"(multiplier), "r"(offset + (total >> 31)));
        __asm__("ssat %0, #8, %1" : "=r"(total) : "r"(total >> shift));
        output[i] = (int8_t)total;
#else
        output[i] = (int8_t)utvm_scale(total, multiplier, offset, shift);
#endif
    }
#endif
}

// A matrix product of rows by rows, both of `depth` bytes; column_sums are for
// the rows of the right side.
static inline void utvm_matmul(const int8_t *left, const int8_t *right, int32_t left_zero_point,
                               int32_t right_zero_point, int32_t multiplier, int32_t shift,
                               int32_t zero_point, int32_t low, int32_t high, int8_t *output,
                               int32_t *sums, int32_t rows, int32_t depth, int32_t columns) {
    int32_t *column_sums = sums + columns;
    // Shifts for which utvm_scale is the same, as sums stay below 2^30.
    const int32_t is_short = shift <= -1 && shift >= -22 && low == INT8_MIN && high == INT8_MAX;
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
        if (is_short) {
            utvm_scale_run(sums, column_sums, -row_sum, multiplier, offset, right_shift, output,
                           columns);
            continue;
        }
        for (int32_t column = 0; column < columns; column++) {
            int32_t total = sums[column] + column_sums[column] - row_sum;
            total = utvm_requantize(total, multiplier, shift) + zero_point;
            output[column] = (int8_t)utvm_clamp(total, low, high);
        }
    }
}
