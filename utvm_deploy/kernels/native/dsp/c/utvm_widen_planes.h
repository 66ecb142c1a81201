const int32_t plane = plane_bytes / 2;
for (int32_t c = 0; c < 4 * quads; c++, from++, to += plane) {
    for (int32_t x = 0; x < pixels; x++) {
        to[x] = from[x * pitch];
    }
    if (pixels % 2 != 0) {
        to[pixels] = (int16_t)border;
    }
}
