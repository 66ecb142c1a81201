int32_t m = 0;
for (; m + 2 <= rows; m += 2) {
    for (int32_t n = 0; n < columns; n += 2) {
        utvm_mve_dot_four(a + m * a_pitch, b + n * b_pitch, c + m * c_pitch + n, a_pitch, b_pitch,
                          c_pitch, DEPTH);
    }
}
for (; m < rows; m++) {
    for (int32_t n = 0; n < columns; n += 2) {
        utvm_mve_dot_two(a + m * a_pitch, b + n * b_pitch, c + m * c_pitch + n, b_pitch, DEPTH);
    }
}
