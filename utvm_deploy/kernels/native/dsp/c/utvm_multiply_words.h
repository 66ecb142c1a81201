for (int32_t i = 0; i < count; i++) {
    int32_t product = (left[i] + (int16_t)numbers[5]) * (right[i] + (int16_t)numbers[6]);
    int32_t value = utvm_scale(product, numbers[0], numbers[1], numbers[2]);
    output[i] = (int8_t)utvm_clamp(value, numbers[3], numbers[4]);
}
