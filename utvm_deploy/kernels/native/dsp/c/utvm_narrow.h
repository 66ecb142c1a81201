for (int32_t o = 0; o < outputs; o++, scaling += scaling_step) {
    uint32_t sum = (uint32_t)bias[o];
    for (int32_t i = 0; i < inputs; i++) {
        sum += (uint32_t)(vector[i] * weights[i / 4 * 4 * outputs + o * 4 + i % 4]);
    }
    int32_t value = utvm_scale_wide((int32_t)sum, scaling[0], scaling[1], scaling[2], scaling[3]);
    output[o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
}
