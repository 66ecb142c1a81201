// The samples times a power of two, as large as the greatest of them allows. It is kept in 16
// bits, where that of -32768 is -32768 itself: then a later sample takes its place.
static inline void utvm_fft_auto_scale(const int16_t *input, int16_t *output, int32_t *bits,
                                       int32_t samples) {
    int16_t most = 0;
    for (int32_t i = 0; i < samples; i++) {
        if (input[i] > most) {
            most = input[i];
        } else if (-input[i] > most) {
            most = (int16_t)-input[i];
        }
    }
    int32_t shift = 0;
    while (most > 0 && most << shift <= INT16_MAX / 2) {
        shift++;
    }
    for (int32_t i = 0; i < samples; i++) {
        output[i] = (int16_t)((uint32_t)input[i] << shift);
    }
    *bits = shift;
}
