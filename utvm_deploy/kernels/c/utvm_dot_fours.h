for (int32_t row = 0; row < 4 * fours; row++, matrix += pitch) {
    int32_t total = 0;
    for (int32_t i = 0; i < count; i++) {
        total += vector[i] * matrix[i];
    }
    sums[row] = total;
}
