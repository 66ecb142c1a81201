for (int32_t row = 0; row < rows; row++, bytes += pitch) {
    const int8_t *from = bytes;
    for (int32_t q = 0; q < quads; q++, from += 4, patches += 12) {
        patches[0] = from[0];
        patches[1] = from[2];
        patches[6] = from[1];
        patches[7] = from[3];
    }
}
