for (int32_t i = 0; i < count; i++) {
    int32_t total = utvm_add(utvm_entry(table, looked_up[i]), shifted[i] * (1 << 19));
    int32_t value = utvm_scale(total, scaling[0], scaling[1], scaling[2]);
    output[i] = (int8_t)utvm_clamp(value, scaling[3], scaling[4]);
}
