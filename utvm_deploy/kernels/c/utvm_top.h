// Whether a value stands before another one. What is not a number stands last.
static inline int utvm_precedes_ELEMENT(ELEMENT value, ELEMENT other) {
    return value > other;
}

// The positions of the largest elements of each row, the largest first. Of equal
// elements the first stands first.
static inline void utvm_top_ELEMENT(const ELEMENT *input, int32_t *output, int32_t rows,
                                    int32_t length, int32_t count) {
    for (int32_t row = 0; row < rows; row++, input += length, output += count) {
        int32_t found = 0;
        for (int32_t j = 0; j < length; j++) {
            if (found == count && !utvm_precedes_ELEMENT(input[j], input[output[count - 1]])) {
                continue;
            }
            int32_t place = found < count ? found++ : count - 1;
            while (place > 0 && utvm_precedes_ELEMENT(input[j], input[output[place - 1]])) {
                output[place] = output[place - 1];
                place--;
            }
            output[place] = j;
        }
    }
}
