for (int32_t p = 0; p < pixels; p++, from += from_step / 2, to += to_step / 2) {
    for (int32_t i = 0; i < 2 * words; i++) {
        to[i] = from[i];
    }
}
