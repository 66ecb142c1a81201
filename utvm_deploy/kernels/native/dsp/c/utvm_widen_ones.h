for (; quads > 0; quads--, first += 4, second += 4) {
    for (int32_t n = 0; n < 4; n++, to += to_step / 2) {
        to[0] = first[n];
        to[1] = second[n];
    }
}
