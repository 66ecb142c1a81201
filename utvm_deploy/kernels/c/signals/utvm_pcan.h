// A gain by the noise: a parabola in each octave, whose coefficients are four numbers of a table.
static inline int16_t utvm_octave_gain(uint32_t noise, const int16_t *gains) {
    if (noise <= 2) {
        return gains[noise];
    }
    int32_t octave = 2;
    while (octave < 32 && noise >> octave) {
        octave++;
    }
    const int16_t *at = gains + 4 * octave - 6;
    const uint32_t scaled = octave < 11 ? noise << (11 - octave) : noise >> (octave - 11);
    const int32_t part = (int32_t)(scaled & 1023u);
    uint32_t sum = (uint32_t)((at[2] * part) >> 5) + ((uint32_t)at[1] << 5);
    sum = sum * (uint32_t)part + (1u << 14);
    return (int16_t)(((int32_t)sum >> 15) + at[0]);
}

// What is below 2 (of 12 fractional bits) becomes a quarter of its square, the rest is less by 1.
static inline void utvm_pcan(const uint32_t *input, const uint32_t *noise, const int16_t *gains,
                             uint32_t *output, int32_t channels, int32_t shift) {
    for (int32_t i = 0; i < channels; i++) {
        const uint64_t gain = (uint32_t)utvm_octave_gain(noise[i], gains);
        const uint32_t ratio = (uint32_t)((input[i] * gain) >> shift);
        output[i] = ratio < 2u << 12 ? (ratio * ratio) >> 20 : (ratio >> 6) - (1u << 6);
    }
}
