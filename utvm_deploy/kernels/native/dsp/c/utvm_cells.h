(void)table;
for (int32_t i = 0; i < count; i++) {
    const int32_t *forget = pairs + 2 * count;
    const int32_t *made = forget + 2 * count;
    const int32_t *shown = made + 2 * count;
    const int32_t added = pairs[2 * i] * made[2 * i];
    int32_t value = (added + (added >> 31) + scaling[1]) >> scaling[2];
    value = utvm_int16(value + utvm_rounded16(forget[2 * i] * cells[i], 15));
    value = utvm_clamp(value, -INT32_MAX - 1 + scaling[4], INT32_MAX - scaling[3]);
    cells[i] = value;
    value = shown[2 * i] * utvm_tanh16(value, scaling[0] + 2);
    value = utvm_requantize(value, scaling[5], -scaling[7]) + scaling[8];
    hidden[i] = (int8_t)utvm_clamp(value, -128, 127);
}
