for (int32_t i = 0; i < count; i++) {
    int32_t value = utvm_requantize(left[i] * right[i], numbers[0], -numbers[2]);
    output[i] = (int16_t)utvm_clamp(value, numbers[3], numbers[4]);
}
