int8_t *to = (int8_t *)columns;
for (int32_t i = 0; i < 16 * vectors; i++) {
    for (int32_t r = 0; r < 4; r++) {
        *to++ = rows[(r < count ? r : count - 1) * row + i];
    }
}
