// round(input / scale[0]) + zero_point as int8. The assembly takes the product with scale[1], the
// reciprocal. It ends at four elements of which one is near a half, NaN or infinity: these are
// divided.
static inline void utvm_quantize_floats(const float *input, const float *scale, int32_t zero_point,
                                        int8_t *output, int32_t count) {
    const int32_t offset = zero_point * 65536 + 32768 + MARGIN;
    for (int32_t i = 0; i < count;) {
        int32_t fours = (count - i) >> 2;
        if (fours > 0) {
            utvm_quantize_fours(input + i, output + i, scale + 1, offset, &fours);
            i = (((count - i) >> 2) - fours) * 4 + i;
        }
        for (const int32_t end = i + 4 < count ? i + 4 : count; i < end; i++) {
            output[i] =
                (int8_t)utvm_clamp(utvm_quantize(input[i] / scale[0]) + zero_point, -128, 127);
        }
    }
}
