// One side repeats after its period of elements; the period of the other side is 0. Short periods
// are written out into a row.
static inline void LOOP_runs(const int8_t *left, const int8_t *right, const int32_t *numbers,
                             int8_t *output, int32_t count, int32_t left_period,
                             int32_t right_period) {
    const int32_t period = left_period + right_period;
    const int8_t *repeated = left_period > 0 ? left : right;
    int8_t row[256];
    int32_t span = period;
    if (period < 64) {
        span = period * 4 * (64 / period);
        span = span < count ? span : count;
        if (period == 1) {
            utvm_bytes_fill(row, repeated[0], span);
        } else {
            utvm_bytes_copy(row, repeated, period);
            for (int32_t made = period; made < span; made *= 2) {
                utvm_bytes_copy(row + made, row, span - made < made ? span - made : made);
            }
        }
        repeated = row;
    }
    for (int32_t at = 0; at < count; at += span) {
        const int32_t some = count - at < span ? count - at : span;
        LOOP(left_period > 0 ? repeated : left + at, right_period > 0 ? repeated : right + at,
             numbers, output + at, some);
    }
}
