// Pixels of RGB565 as three bytes each. The high bits of a channel are repeated below it, so that
// the largest becomes 255. "high" is the place of the byte that has the red.
static inline void utvm_rgb565(const uint8_t *input, uint8_t *output, int32_t pixels,
                               int32_t high) {
    for (int32_t i = 0; i < pixels; i++) {
        const uint32_t pixel = (uint32_t)input[high] << 8 | input[1 - high];
        output[0] = (uint8_t)((pixel >> 8 & 0xF8u) | pixel >> 13);
        output[1] = (uint8_t)((pixel >> 3 & 0xFCu) | (pixel >> 9 & 3u));
        output[2] = (uint8_t)((pixel << 3 & 0xF8u) | (pixel >> 2 & 7u));
        input += 2, output += 3;
    }
}
