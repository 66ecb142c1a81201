for (int32_t c = 0; c < channels; c++) {
    uint16_t sum = 0;
    for (int32_t i = 0; i < rows * columns; i++) {
        sum = FORMAT_add(sum, from[i / columns * row_bytes + i % columns * channels + c]);
    }
    sum = FORMAT_divide(sum, FORMAT_of_integer(rows * columns));
    sum = FORMAT_less(sum, (uint16_t)low) ? (uint16_t)low : sum;
    to[c] = FORMAT_less((uint16_t)high, sum) ? (uint16_t)high : sum;
}
