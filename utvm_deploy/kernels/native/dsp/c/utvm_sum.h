// Totals scaled in float32; `offset` is for zero points.
UTVM_EXACT_FLOAT static inline void utvm_sums_of(const int32_t *totals, int32_t count, float ratio,
                                                 float offset, int32_t zero_point, int8_t *output) {
    for (int32_t i = 0; i < count; i++) {
        const float scaled = (float)totals[i] * ratio + offset;
        output[i] = (int8_t)utvm_clamp(utvm_quantize(scaled) + zero_point, -128, 127);
    }
}

// Sums over the middle one of three dimensions.
static inline void utvm_sum(const int8_t *input, const float *ratio, const float *offset,
                            int32_t zero_point, int8_t *output, int32_t outer, int32_t count,
                            int32_t inner) {
    for (int32_t n = 0; n < outer; n++, input += count * inner, output += inner) {
        for (int32_t column = 0; column < inner; column += 64) {
            const int32_t some = inner - column > 64 ? 64 : inner - column;
            int32_t totals[64];
            if (inner == 1) {
                totals[0] = utvm_sum_run(input, count);
            } else {
                utvm_sum_block(input + column, count, some, inner, totals);
            }
            utvm_sums_of(totals, some, ratio[0], offset[0], zero_point, output + column);
        }
    }
}
