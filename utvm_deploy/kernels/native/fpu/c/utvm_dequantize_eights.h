for (int32_t i = 0; i < 8 * eights; i++) {
    output[i] = (float)(input[i] - zero_point) * scale[0];
}
