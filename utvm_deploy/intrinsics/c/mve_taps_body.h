for (int32_t n = 0; n < channels; n += 4) {
    mve_pred16_t valid = vctp32q((uint32_t)(channels - n));
    int32x4_t sums = vldrwq_z_s32(c + n, valid);
    for (int32_t y = 0; y < height; y++) {
        const int8_t *value = a + y * a_row + n;
        const int8_t *weight = b + y * b_row + n;
        for (int32_t x = width; x > 0; x--) {
            int32x4_t values = vldrbq_z_s32(value, valid);
            sums = vaddq_s32(sums, vmulq_s32(values, vldrbq_z_s32(weight, valid)));
            value += a_pixel;
            weight += b_pixel;
        }
    }
    vstrwq_p_s32(c + n, sums, valid);
}
