for (int32_t p = 0; p < count; p++, pixels += pitch, output += channels) {
    const int8_t *w = weights;
    const int32_t *s = scaling;
    for (int32_t o = 0; o < channels; o += 4, w += 4 * depth) {
        int32_t sums[4];
        utvm_plain_dot(pixels, w, depth, sums);
        for (int32_t n = 0; n < 4 && o + n < channels; n++, s += ROWS) {
            int32_t value = utvm_add(sums[n], s[0]);
            value = SCALED;
            output[o + n] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
        }
    }
}
