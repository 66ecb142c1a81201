for (int32_t m = 0; m < rows; m++) {
    for (int32_t n = 0; n < columns; n++) {
        int32_t sum = 0;
        for (int32_t k = 0; k < DEPTH; k++) {
            sum += a[m * a_pitch + k] * b[n * b_pitch + k];
        }
        c[m * c_pitch + n] += sum;
    }
}
