// Transforms of rows of real numbers, Zeros follow the numbers of a row up to twice "count".
static inline void utvm_rfft_NAME(const NUMBER *input, const uint16_t *places,
                                  const NUMBER *twiddles, const NUMBER *apart,
                                  const uint8_t *radices, NUMBER *output, int32_t rows,
                                  int32_t numbers, int32_t count, int32_t stages) {
    for (int32_t row = 0; row < rows; row++, input += numbers, output += 2 * count + 2) {
        utvm_complex_NAME *made = (utvm_complex_NAME *)(void *)output;
        for (int32_t k = 0; k < count; k++) {
            made[places[k]].re = 2 * k < numbers ? input[2 * k] : (NUMBER)0;
            made[places[k]].im = 2 * k + 1 < numbers ? input[2 * k + 1] : (NUMBER)0;
        }
        utvm_real_fft_NAME(made, twiddles, apart, radices, count, stages);
    }
}
