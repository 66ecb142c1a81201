const int32_t taps = shape[0], length = shape[1], jump = shape[2] / 2 + length;
(void)mode;
for (int32_t group = 0; group < groups; group++) {
    const uint16_t *w = panels + group * (taps * length + 1) * CHANNELS;
    for (int32_t p = 0; p < rows * width; p++) {
        const uint16_t *x = image + p / width * (shape[3] / 2) + p % width * STRIDE;
        uint16_t *to = output + p * (shape[4] / 2) + group * CHANNELS;
        for (int32_t c = 0; c < CHANNELS; c++) {
            uint16_t sum = 0;
            for (int32_t k = 0; k < taps * length; k++) {
                const uint16_t value = x[k / length * jump + k % length];
                sum = FORMAT_fma(value, w[k * CHANNELS + c], sum);
            }
            sum = FORMAT_add(sum, w[taps * length * CHANNELS + c]);
            sum = FORMAT_less(sum, limits[0]) ? limits[0] : sum;
            to[c] = FORMAT_less(limits[1], sum) ? limits[1] : sum;
        }
    }
}
