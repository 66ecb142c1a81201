for (int32_t i = 0; i < count; i++) {
    int32_t scaled = utvm_requantize(left[i] * numbers[8] + numbers[0], numbers[1], numbers[2]);
    int32_t total = scaled * numbers[11] + right[i] * numbers[3] + numbers[4];
    int32_t value = utvm_requantize(total, numbers[5], numbers[6]) + numbers[7];
    output[i] = (int8_t)utvm_clamp(value, numbers[9], numbers[10]);
}
