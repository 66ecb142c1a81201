for (int32_t p = 0; p < pixels; p++, from += from_step, to += to_step / 2) {
    for (int32_t q = 0; q < quads; q++) {
        to[4 * q] = from[4 * q];
        to[4 * q + 1] = from[4 * q + 2];
        to[4 * q + 2] = from[4 * q + 1];
        to[4 * q + 3] = from[4 * q + 3];
    }
}
