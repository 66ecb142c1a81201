for (int32_t i = 0; i < count; i++) {
    int32_t product = (left[i] + numbers[0]) * (right[i] + numbers[1]);
    int32_t value = utvm_requantize(product, numbers[2], numbers[3]) + numbers[4];
    output[i] = (int8_t)utvm_clamp(value, numbers[5], numbers[6]);
}
