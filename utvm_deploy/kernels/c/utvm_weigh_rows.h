// A pixel and the one below it, times 1024, by the second one's share in 1/1024.
for (int32_t c = 0; c < 4 * fours; c++) {
    pixel[c] = upper[c] * (1024 - share) + lower[c] * share;
}
