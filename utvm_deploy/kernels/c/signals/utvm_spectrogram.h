// Transforms of "frames" frames of each row, times a window: the complex numbers, or their squared
// amounts. "work" has two more floats than a frame.
static inline void utvm_spectrogram(const float *input, const float *window, const uint16_t *places,
                                    const float *twiddles, const float *apart,
                                    const uint8_t *radices, float *output, float *work,
                                    int32_t rows, int32_t samples, int32_t frames, int32_t step,
                                    int32_t size, int32_t is_power, int32_t count, int32_t stages) {
    utvm_complex_float *made = (utvm_complex_float *)(void *)work;
    for (int32_t frame = 0; frame < rows * frames; frame++) {
        const float *from = input + frame / frames * samples + frame % frames * step;
        for (int32_t k = 0, i = 0; k < count; k++, i += 2) {
            made[places[k]].re = i < size ? from[i] * window[i] : 0;
            made[places[k]].im = i + 1 < size ? from[i + 1] * window[i + 1] : 0;
        }
        utvm_real_fft_float(made, twiddles, apart, radices, count, stages);
        for (int32_t k = 0; k <= count; k++) {
            if (is_power) {
                *output++ = made[k].re * made[k].re + made[k].im * made[k].im;
            } else {
                *output++ = made[k].re;
                *output++ = made[k].im;
            }
        }
    }
}
