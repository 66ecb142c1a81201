static inline void utvm_mve_wide_pool_by_DRIVER(const int16_t *image, const int32_t *geometry,
                                                int32_t low, int32_t high, int16_t *output,
                                                int32_t batch) {
    for (int32_t n = 0; n < batch; n++) {
        DRIVER(image, output, geometry, low, high);
        image += geometry[0] * geometry[1] * geometry[2];
        output += geometry[3] * geometry[4] * geometry[2];
    }
}
