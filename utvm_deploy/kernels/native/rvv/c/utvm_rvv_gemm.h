FIRST
for (; count > 0; count--, pixels += pitch, output += channels) {
    for (int32_t c = 0; c < channels; c++) {
        uint32_t sum = (uint32_t)scaling[c];
        for (int32_t k = 0; k < depth; k++) {
            sum += (uint32_t)(pixels[k] * weights[k * channels + c]);
        }
        output[c] = (int8_t)utvm_clamp(SCALED, low, high);
    }
}
