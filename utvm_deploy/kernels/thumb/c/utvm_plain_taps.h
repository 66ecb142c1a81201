const int32_t rows = geometry[0], run = geometry[1], column_pitch = geometry[3];
for (int32_t r = 0; r < rows; r++, pixel += geometry[2]) {
    const int8_t *end = pixel + run;
    for (; pixel < end; pixel += column_pitch, weights++) {
        sums[0] = utvm_add(sums[0], pixel[0] * weights[0]);
        sums[1] = utvm_add(sums[1], pixel[geometry[4]] * weights[0]);
    }
}
