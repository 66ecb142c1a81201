// The averages of images of ``count`` pixels.
static inline void utvm_average_images(const int8_t *x, int32_t low, int32_t high, int8_t *output,
                                       int32_t batch, int32_t count, int32_t channels) {
    for (int32_t n = 0; n < batch; n++, x += count * channels, output += channels) {
        for (int32_t channel = 0; channel < channels; channel += 64) {
            const int32_t some = channels - channel > 64 ? 64 : channels - channel;
            int32_t totals[64];
            utvm_sum_block(x + channel, count, some, channels, totals);
            utvm_pool_averages(totals, output + channel, count, low, high, some);
        }
    }
}
