static inline void utvm_dequantize_bytes(const int8_t *input, const float *scale,
                                         int32_t zero_point, float *output, int32_t count) {
    const int32_t whole = count & ~7;
    if (whole > 0) {
        utvm_dequantize_eights(input, output, scale, zero_point, whole >> 3);
    }
    for (int32_t i = whole; i < count; i++) {
        output[i] = (float)(input[i] - zero_point) * scale[0];
    }
}
