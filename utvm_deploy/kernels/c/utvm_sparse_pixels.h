// The outputs of PIXELS pixels of a convolution, which are `pitch` apart, from their sums.
for (int32_t o = 0; o < outputs; o++, scaling += 4) {
    for (int32_t p = 0; p < PIXELS; p++) {
        int32_t sum = utvm_add(*sums++, scaling[0]);
        int32_t value = utvm_scale(sum, scaling[1], scaling[2], scaling[3]);
        output[o + p * pitch] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
