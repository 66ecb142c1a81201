(void)mode;
for (int32_t group = 0; group < groups; group++) {
    const float *w = panels + group * (depth + 1) * CHANNELS;
    for (int32_t p = 0; p < count; p++) {
        const float *x = pixels + p / PIXELS * PIXELS * depth + p % PIXELS;
        float *to = output + p * (pitch / 4) + group * CHANNELS;
        for (int32_t c = 0; c < CHANNELS; c++) {
            float sum = 0.0f;
            for (int32_t k = 0; k < depth; k++) {
                sum += x[PIXELS * k] * w[k * CHANNELS + c];
            }
            to[c] = utvm_float_limited(sum + w[depth * CHANNELS + c], limits);
        }
    }
}
