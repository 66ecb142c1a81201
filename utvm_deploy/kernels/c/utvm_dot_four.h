for (int32_t row = 0; row < 4; row++) {
    int32_t total = 0;
    for (int32_t i = 0; i < count; i++) {
        total += vector[i] * matrix[row * pitch + i];
    }
    sums[row] = total;
}
