// The product of sums that need more than 32 bits. Of each channel in turn: the
// bias, the multiplier, the shift.
static void utvm_mve_wide_long(const int16_t *pixels, const int8_t *weights, const int64_t *scaling,
                               const int32_t *limits, int16_t *output, int32_t count,
                               int32_t channels, int32_t depth, int32_t pitch) {
    const int32_t padded = (depth + 7) / 8 * 8;
    for (int32_t p = 0; p < count; p++, pixels += pitch) {
        const int64_t *scale = scaling;
        for (int32_t first = 0; first < channels; first += 4) {
            int64_t totals[4];
            utvm_mve_wide_four(pixels, weights + first * padded, totals, depth);
            for (int32_t i = 0; i < 4 && first + i < channels; i++, scale += 3) {
                int32_t value = utvm_requantize_wide(totals[i] + scale[0], (int32_t)scale[1],
                                                     (int32_t)scale[2]);
                *output++ = (int16_t)utvm_clamp(value, limits[1], limits[2]);
            }
        }
    }
}
