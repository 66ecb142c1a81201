for (int32_t c = 0; c < channels; c++) {
    const int8_t *w = weights + c / 8 * 8 * taps + c % 8;
    const int32_t *s = scaling + c / 8 * GROUP_WORDS + c % 2 * 4 + c % 8 / 2;
    for (int32_t p = 0; p < count; p++) {
        uint32_t sum = (uint32_t)s[0];
        for (int32_t t = 0; t < taps; t++) {
            sum += (uint32_t)(rows[offsets[t] + p * step + c] * w[8 * t]);
        }
        int32_t value = utvm_requantize((int32_t)sum, s[8], s[16] + LEFT_SHIFT) + limits[0];
        output[p * channels + c] = (int8_t)utvm_clamp(value, limits[1], limits[2]);
    }
}
