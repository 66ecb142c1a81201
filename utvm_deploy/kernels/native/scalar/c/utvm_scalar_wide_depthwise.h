static inline int16_t utvm_scalar_wide_value(uint32_t sum, const int32_t *scaling, int32_t low,
                                             int32_t high) {
    const int32_t value = utvm_scalar_once((int32_t)sum, scaling[4], scaling[8], scaling[12]);
    return (int16_t)utvm_clamp(value, low, high);
}

// A pixel: groups of four channels, and each of the rest by itself. The walk is that of
// utvm_wide_depthwise.
#if defined(__GNUC__)
__attribute__((noinline))
#endif
static void utvm_scalar_wide_depthwise(const int16_t *first, const int8_t *weights,
                                       const int32_t *scaling, int16_t *output,
                                       const int32_t *walk) {
    const int32_t columns = walk[0] > 0 ? walk[1] : 0;
    const int32_t right = walk[3] / 2, down = walk[2] / 2, skipped = walk[4];
    const int32_t low = walk[7], high = walk[8];
    int32_t left = walk[6];
    for (; left >= 4; left -= 4, first += 4, weights += walk[5], scaling += 16, output += 4) {
        const int16_t *x = first;
        const int8_t *w = weights;
        uint32_t a = (uint32_t)scaling[0], b = (uint32_t)scaling[1];
        uint32_t c = (uint32_t)scaling[2], d = (uint32_t)scaling[3];
        for (int32_t rows = walk[0]; rows > 0; rows--, x += down, w += skipped) {
            for (int32_t k = columns; k > 0; k--, x += right, w += 4) {
                a += (uint32_t)(x[0] * w[0]);
                b += (uint32_t)(x[1] * w[1]);
                c += (uint32_t)(x[2] * w[2]);
                d += (uint32_t)(x[3] * w[3]);
            }
        }
        output[0] = utvm_scalar_wide_value(a, scaling, low, high);
        output[1] = utvm_scalar_wide_value(b, scaling + 1, low, high);
        output[2] = utvm_scalar_wide_value(c, scaling + 2, low, high);
        output[3] = utvm_scalar_wide_value(d, scaling + 3, low, high);
    }
    for (; left > 0; left--, first++, weights++, scaling++, output++) {
        const int16_t *x = first;
        const int8_t *w = weights;
        uint32_t a = (uint32_t)scaling[0];
        for (int32_t rows = walk[0]; rows > 0; rows--, x += down, w += skipped) {
            for (int32_t k = columns; k > 0; k--, x += right, w += 4) {
                a += (uint32_t)(x[0] * w[0]);
            }
        }
        output[0] = utvm_scalar_wide_value(a, scaling, low, high);
    }
}
