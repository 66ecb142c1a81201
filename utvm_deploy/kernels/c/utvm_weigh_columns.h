// Two such pixels; halves go away from zero.
for (int32_t c = 0; c < 4 * fours; c++) {
    const int32_t total = left[c] * (1024 - share) + right[c] * share;
    output[c] = (int8_t)((total + (total >> 31) + (1 << 19)) >> 20);
}
