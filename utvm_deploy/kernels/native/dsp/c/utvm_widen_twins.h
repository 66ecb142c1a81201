for (int32_t c = 0; c < 4 * quads; c++, upper++, lower++, to += PLANE) {
    for (int32_t x = 0; x < PIXELS; x++) {
        to[x] = (int32_t)((uint32_t)(upper[x * STEP] + 128) | (uint32_t)lower[x * STEP] << 24);
    }
}
