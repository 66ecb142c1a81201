// With weights of int4: those of some channels are unpacked for all pixels.
static void utvm_wide_conv_int4(const int16_t *image, const int32_t *geometry,
                                const int8_t *weights, const int64_t *bias,
                                const int32_t *multiplier, const int32_t *shift, int32_t low,
                                int32_t high, int16_t *output, int16_t *row, int64_t *totals,
                                int8_t *unpacked, int32_t block) {
    const int32_t pitch = geometry[15];
    for (int32_t first = 0; first < geometry[14]; first += block) {
        const int32_t rest = geometry[14] - first, count = rest < block ? rest : block;
        utvm_unpack_halves(weights + first * pitch / 2, unpacked, (count + 3) / 4 * 4 * pitch);
        utvm_wide_conv_part(image, geometry, unpacked, bias + first, multiplier + first,
                            shift + first, low, high, output + first, row, totals, count);
    }
}
