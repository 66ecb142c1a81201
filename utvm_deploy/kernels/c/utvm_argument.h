// Where the largest of each row is first, or with `flip` -1 the smallest.
static inline void utvm_argument(const int8_t *input, int32_t *output, int32_t rows, int32_t depth,
                                 int32_t flip) {
    for (int32_t row = 0; row < rows; row++, input += depth) {
        const int32_t wanted = utvm_largest_byte(input, depth, flip) ^ flip;
        int32_t place = 0;
        while (input[place] != wanted) {
            place++;
        }
        output[row] = place;
    }
}
