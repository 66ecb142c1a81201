// Two rows of the output, `apart` bytes from each other, for the channels up to the table's end.
enum { TAPS = ROWS * COLUMNS };
for (int32_t y = 0; y < rows; y++) {
    for (int32_t x = 0; x < WIDTH; x++, output += CHANNELS) {
        const int32_t *from = words + y * ROW_STRIDE * PITCH + x * STRIDE;
        int8_t *to = output;
        for (const int32_t *t = table; t != end; t += TAPS + 5, from += PLANE, to++) {
            uint64_t sum = (uint32_t)t[TAPS] | (uint64_t)(uint32_t)t[TAPS + 1] << 32;
            for (int32_t k = 0; k < TAPS; k++) {
                sum += (uint64_t)((int64_t)from[k / COLUMNS * PITCH + k % COLUMNS] * t[k]);
            }
            const int32_t low = (int32_t)(uint32_t)sum;
            const int32_t high = (int32_t)(uint32_t)(sum >> 32);
            to[0] = (int8_t)utvm_scale_once(low, t[TAPS + 2], t[TAPS + 3], SHIFT + SPACING);
            to[apart] = (int8_t)utvm_scale_once(high, t[TAPS + 2], t[TAPS + 4], SHIFT);
        }
    }
}
