for (int32_t c = 0; c < channels; c++) {
    int32_t largest = LOWEST;
    for (int32_t i = 0; i < rows * columns; i++) {
        const int32_t value = from[i / columns * row_bytes + i % columns * channels + c];
        largest = value > largest ? value : largest;
    }
    to[c] = (int8_t)utvm_clamp(largest, low, high);
}
