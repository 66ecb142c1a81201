for (int32_t i = 0; i < count; i++) {
    int32_t total = utvm_add(numbers[8 + (left[i] & 255)], right[i] * (1 << 19));
    int32_t value = utvm_scale(total, numbers[0], numbers[1], numbers[2]);
    output[i] = (int8_t)utvm_clamp(value, numbers[3], numbers[4]);
}
