// With weights of int4: those of some channels, a multiple of eight, are unpacked
// for all pixels.
static inline void utvm_wide_depthwise_int4(const int16_t *image, const int32_t *geometry,
                                            const int8_t *weights, const int32_t *scaling,
                                            int32_t low, int32_t high, int16_t *output,
                                            int8_t *unpacked, int32_t block) {
    const int32_t taps = geometry[6] * geometry[7];
    for (int32_t first = 0; first < geometry[3]; first += block) {
        const int32_t rest = geometry[3] - first, count = rest < block ? rest : block;
        utvm_unpack_halves(weights + first * taps / 2, unpacked, (count + 3) / 4 * 4 * taps);
        utvm_wide_depthwise_part(image + first, geometry, unpacked, scaling + 4 * first, low, high,
                                 output + first, count);
    }
}
