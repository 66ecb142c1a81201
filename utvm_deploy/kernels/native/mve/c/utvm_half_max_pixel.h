for (int32_t c = 0; c < channels; c++) {
    uint16_t largest = 0xfc00u;
    for (int32_t i = 0; i < rows * columns; i++) {
        const uint16_t value = from[i / columns * row_bytes + i % columns * channels + c];
        largest = FORMAT_less(largest, value) ? value : largest;
    }
    largest = FORMAT_less(largest, (uint16_t)low) ? (uint16_t)low : largest;
    to[c] = FORMAT_less((uint16_t)high, largest) ? (uint16_t)high : largest;
}
