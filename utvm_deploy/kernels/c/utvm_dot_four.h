const int8_t *const second = matrix + pitch;
const int8_t *const third = second + pitch;
const int8_t *const fourth = third + pitch;
int32_t totals[4] = {0, 0, 0, 0};
for (int32_t i = 0; i < count; i++) {
    totals[0] += vector[i] * matrix[i];
    totals[1] += vector[i] * second[i];
    totals[2] += vector[i] * third[i];
    totals[3] += vector[i] * fourth[i];
}
for (int32_t row = 0; row < 4; row++) {
    sums[row] = totals[row];
}
