static void GEMM(const VALUE *pixels, const WEIGHT *weights, const int32_t *scaling,
                 const int32_t *limits, VALUE *output, int32_t count, int32_t channels,
                 int32_t depth, int32_t pitch) {
    for (; count >= PIXELS; count -= PIXELS) {
        GEMM_PIXELS(pixels, weights, scaling, LIMITS, output, channels, depth, pitch);
        pixels += PIXELS * pitch;
        output += PIXELS * channels;
    }
    for (; count > 0; count--) {
        GEMM_1(pixels, weights, scaling, LIMITS, output, channels, depth, pitch);
        pixels += pitch;
        output += channels;
    }
}
