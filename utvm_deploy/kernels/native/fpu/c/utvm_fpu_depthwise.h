(void)mode;
const int32_t height = geometry[0], row_floats = geometry[1] / 4, channels = geometry[2] / 4;
for (int32_t group = 0; group < groups; group++) {
    const float *w = weights + group * (height * COLUMNS + 1) * CHANNELS;
    for (int32_t p = 0; p < count; p++) {
        for (int32_t c = 0; c < CHANNELS; c++) {
            const float *x = rows + p * STRIDE * channels + group * CHANNELS + c;
            float sum = 0.0f;
            for (int32_t ky = 0; ky < height; ky++) {
                const float *row = x + (slot + ky) % height * row_floats;
                for (int32_t kx = 0; kx < COLUMNS; kx++) {
                    sum += row[kx * channels] * w[(ky * COLUMNS + kx) * CHANNELS + c];
                }
            }
            sum += w[height * COLUMNS * CHANNELS + c];
            output[p * channels + group * CHANNELS + c] = utvm_float_limited(sum, limits);
        }
    }
}
