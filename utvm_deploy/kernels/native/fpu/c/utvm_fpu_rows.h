(void)mode;
const int32_t taps = shape[0], length = shape[1] * STEP, jump = shape[2] / 4 + length;
for (int32_t group = 0; group < groups; group++) {
    const float *w = panels + group * (taps * length + 1) * CHANNELS;
    for (int32_t p = 0; p < rows * width; p++) {
        const float *x = image + p / width * (shape[3] / 4) + p % width * STRIDE;
        float *to = output + p * (shape[4] / 4) + group * CHANNELS;
        for (int32_t c = 0; c < CHANNELS; c++) {
            float sum = 0.0f;
            for (int32_t k = 0; k < taps * length; k++) {
                sum += x[k / length * jump + k % length] * w[k * CHANNELS + c];
            }
            to[c] = utvm_float_limited(sum + w[taps * length * CHANNELS + c], limits);
        }
    }
}
