for (int32_t y = 0; y < HEIGHT; y++) {
    for (int32_t x = 0; x < WIDTH; x++) {
        for (int32_t n = 0; n < channels; n++) {
            c[n] += a[y * a_row + x * a_pixel + n] * b[y * b_row + x * b_pixel + n];
        }
    }
}
