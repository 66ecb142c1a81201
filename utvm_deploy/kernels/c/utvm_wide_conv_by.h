// Multiplies `step` windows of int16 at a time by all channels. The geometry counts bytes.
static inline void ROUTINE(const int16_t *image, const int32_t *geometry, const int8_t *weights,
                           const SCALING_t *scaling, const int32_t *limits, int16_t *output,
                           int16_t *windows, int32_t batch, int32_t pixels, int32_t step,
                           int32_t channels, int32_t depth, int32_t is_gathered) {
    for (int32_t n = 0; n < batch; n++, image += geometry[0] * geometry[1] * (geometry[2] / 2)) {
        for (int32_t first = 0; first < pixels; first += step) {
            const int32_t count = pixels - first < step ? pixels - first : step;
            const int16_t *seen = image;
            if (is_gathered) {
                utvm_windows_gather((const int8_t *)image, (int8_t *)windows, first, count, 0,
                                    geometry);
                seen = windows;
            }
            PRODUCT(seen, weights, scaling, limits, output, count, channels, depth, depth);
            output += count * channels;
        }
    }
}
