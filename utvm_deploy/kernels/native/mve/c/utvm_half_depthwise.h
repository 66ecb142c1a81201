const int32_t height = geometry[0], pitch = geometry[1] / 2, channels = geometry[2] / 2;
(void)mode;
for (int32_t group = 0; group < groups; group++) {
    const uint16_t *w = weights + group * (height * COLUMNS + 1) * CHANNELS;
    for (int32_t p = 0; p < count; p++) {
        for (int32_t c = 0; c < CHANNELS; c++) {
            const uint16_t *x = rows + p * STRIDE * channels + group * CHANNELS + c;
            uint16_t sum = 0;
            for (int32_t ky = 0; ky < height; ky++) {
                const uint16_t *row = x + (slot + ky) % height * pitch;
                for (int32_t kx = 0; kx < COLUMNS; kx++) {
                    const uint16_t weight = w[(ky * COLUMNS + kx) * CHANNELS + c];
                    sum = FORMAT_fma(row[kx * channels], weight, sum);
                }
            }
            sum = FORMAT_add(sum, w[height * COLUMNS * CHANNELS + c]);
            sum = FORMAT_less(sum, limits[0]) ? limits[0] : sum;
            output[p * channels + group * CHANNELS + c] =
                FORMAT_less(limits[1], sum) ? limits[1] : sum;
        }
    }
}
