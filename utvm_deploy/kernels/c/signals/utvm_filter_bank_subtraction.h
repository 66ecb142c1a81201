// Each channel less its noise, which follows the channel slowly. Even and odd channels have their
// own pair of factors, for what is new and for what was.
static inline void utvm_filter_bank_subtraction(const uint32_t *input, const uint32_t *factors,
                                                int32_t up, int32_t clamps, int32_t bits,
                                                const uint32_t *before, uint32_t *output,
                                                uint32_t *noise, uint32_t *after,
                                                int32_t channels) {
    for (int32_t i = 0; i < channels; i++) {
        const uint32_t *pair = factors + 2 * (i & 1), value = input[i] << up;
        const uint64_t mixed = (uint64_t)value * pair[0] + (uint64_t)before[i] * pair[1];
        const uint32_t estimate = (uint32_t)(mixed >> bits);
        const uint32_t taken = estimate > value ? value : estimate;
        const uint32_t least = (uint32_t)(((uint64_t)input[i] * factors[4]) >> bits);
        const uint32_t rest = (value - taken) >> up;
        after[i] = noise[i] = clamps ? taken : estimate;
        output[i] = rest > least ? rest : least;
    }
}
