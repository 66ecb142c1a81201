// The numbers of a sum and its table, from the numbers and what makes the table: the zero point of
// the side that is looked up, its multiplier and shift, its sign, and what is added.
UTVM_ONCE static void utvm_tabulate_sum(const int32_t *from, int32_t *numbers) {
    const int32_t *const side = from + 8;
    for (int32_t i = 0; i < 8; i++) {
        numbers[i] = from[i];
    }
    for (int32_t i = 0; i < 256; i++) {
        const int32_t raised = (((i ^ 128) - 128) - side[0]) * (1 << 20);
        numbers[8 + i] = side[3] * utvm_requantize(raised, side[1], side[2]) + side[4];
    }
}
