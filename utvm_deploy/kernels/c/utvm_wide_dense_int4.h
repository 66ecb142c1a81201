// With weights of int4: those of some outputs are unpacked for all rows.
static inline void utvm_wide_dense_int4(const int16_t *input, const int8_t *weights,
                                        const int64_t *bias, const int32_t *scales, int32_t low,
                                        int32_t high, int16_t *output, int16_t *row,
                                        int64_t *totals, int8_t *unpacked, int32_t batch,
                                        int32_t inputs, int32_t outputs, int32_t pitch,
                                        int32_t block) {
    for (int32_t first = 0; first < outputs; first += block) {
        const int32_t rest = outputs - first, count = rest < block ? rest : block;
        utvm_unpack_halves(weights + first * pitch / 2, unpacked, (count + 3) / 4 * 4 * pitch);
        utvm_wide_dense_part(input, unpacked, bias + first, scales + 3 * first, low, high,
                             output + first, row, totals, batch, inputs, count, pitch, outputs);
    }
}
