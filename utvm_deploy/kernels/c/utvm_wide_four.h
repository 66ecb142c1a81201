for (int32_t row = 0; row < 4; row++) {
    const int8_t *weights = matrix + row * pitch;
    int32_t total = 0;
    for (int32_t i = 0; i < count; i += 4) {
        total += vector[i] * weights[i] + vector[i + 1] * weights[i + 2];
        total += vector[i + 2] * weights[i + 1] + vector[i + 3] * weights[i + 3];
    }
    sums[row] = total;
}
