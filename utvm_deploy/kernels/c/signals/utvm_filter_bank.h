// Each channel adds up its weighted energies, and the unweighted ones of the channel before. The
// first one only makes the latter.
static inline void utvm_filter_bank(const uint32_t *input, const int16_t *weights,
                                    const int16_t *unweights, const int16_t *starts,
                                    const int16_t *firsts, const int16_t *widths, uint64_t *output,
                                    int32_t channels) {
    uint64_t carried = 0;
    for (int32_t i = 0; i <= channels; i++) {
        uint64_t sum = carried;
        carried = 0;
        for (int32_t j = 0; j < widths[i]; j++) {
            const uint64_t energy = input[starts[i] + j];
            sum += (uint64_t)weights[firsts[i] + j] * energy;
            carried += (uint64_t)unweights[firsts[i] + j] * energy;
        }
        if (i > 0) {
            output[i - 1] = sum;
        }
    }
}
