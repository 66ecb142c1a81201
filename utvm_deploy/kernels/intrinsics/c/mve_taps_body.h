for (int32_t n = 0; n < channels; n += 4) {
    int32x4_t sums = vldrwq_s32(c + n);
    for (int32_t y = 0; y < HEIGHT; y++) {
        const int8_t *value = a + y * a_row + n;
        const int8_t *weight = b + y * b_row + n;
        for (int32_t x = WIDTH; x > 0; x--) {
            int32x4_t values = vldrbq_s32(value);
            sums = vaddq_s32(sums, vmulq_s32(values, vldrbq_s32(weight)));
            value += a_pixel;
            weight += b_pixel;
        }
    }
    vstrwq_s32(c + n, sums);
}
