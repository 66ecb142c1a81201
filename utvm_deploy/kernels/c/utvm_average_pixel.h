const int32_t count = rows * columns;
for (int32_t c = 0; c < channels; c++) {
    int32_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        sum += from[i / columns * row_bytes + i % columns * channels + c];
    }
    const int32_t half = sum < 0 ? -(count / 2) : count / 2;
    to[c] = (int8_t)utvm_clamp((sum + half) / count, low, high);
}
