// One side repeats after its period of elements; the period of the other side is 0. Short periods
// are written out into a row.
static inline void LOOP_runs(const int8_t *left, const int8_t *right, const int32_t *numbers,
                             int8_t *output, int32_t count, int32_t left_period,
                             int32_t right_period) {
    const int32_t period = left_period + right_period;
    const int8_t *repeated = left_period > 0 ? left : right;
    int8_t row[128];
    int32_t span = period;
    if (period < 64) {
        span = period * (128 / period);
        span = span < count ? span : count;
        for (int32_t i = 0; i < span; i++) {
            row[i] = i < period ? repeated[i] : row[i - period];
        }
        repeated = row;
    }
    for (int32_t at = 0; at < count; at += span) {
        LOOP(left_period > 0 ? repeated : left + at, right_period > 0 ? repeated : right + at,
             numbers, output + at, count - at < span ? count - at : span);
    }
}
