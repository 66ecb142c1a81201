(void)table;
for (int32_t i = 0; i < count; i++) {
    const int32_t *by = scaling;
    int32_t value = utvm_int16(utvm_requantize(pairs[2 * i], by[3], by[0] - 1 - by[4]));
    by += 5;
    value = utvm_int16(utvm_requantize(pairs[2 * i + 1], by[3], by[0] - 1 - by[4]) + value);
    pairs[2 * i] = utvm_activation(value);
}
