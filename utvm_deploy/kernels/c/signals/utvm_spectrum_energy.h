// The squared amounts of complex numbers.
static inline void utvm_spectrum_energy(const int16_t *input, uint32_t *output, int32_t count,
                                        int32_t start, int32_t end) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t re = input[2 * i], im = input[2 * i + 1];
        output[i] = i < start || i >= end ? 0u : (uint32_t)(re * re) + (uint32_t)(im * im);
    }
}
