for (int32_t n = 0; n < 4; n++, weights += depth) {
    uint32_t sum = 0;
    for (int32_t k = 0; k < depth; k++) {
        sum += (uint32_t)(pixel[k] * weights[k]);
    }
    sums[n] = (int32_t)sum;
}
