// Where the numbers of a layer are in its table.
enum {
    UTVM_HEIGHT,
    UTVM_WIDTH,
    UTVM_INPUTS,
    UTVM_OUTPUT_WIDTH,
    UTVM_ROWS,
    UTVM_COLUMNS,
    UTVM_ROW_STRIDE,
    UTVM_COLUMN_STRIDE,
    UTVM_ROW_DILATION,
    UTVM_COLUMN_DILATION,
    UTVM_TOP,
    UTVM_LEFT,
    UTVM_BATCH,
    UTVM_LOW,
    UTVM_HIGH,
    UTVM_BORDER,
    UTVM_ZERO_POINT,
    UTVM_OUTPUT_HEIGHT,
    UTVM_OUTPUTS,
    UTVM_BLOCK,
    UTVM_NUMBERS
};

// Unpacks the numbers of a layer: those from the rows to the zero point are a byte each, the others
// two. Returns what follows them.
UTVM_ONCE static const int8_t *utvm_unpack_layer(const int8_t *table, int32_t *layer) {
    for (int32_t n = 0; n < UTVM_NUMBERS; n++) {
        int32_t value = *table++;
        if (n < UTVM_ROWS || n > UTVM_ZERO_POINT) {
            value = (value & 255) + *table++ * 256;
        }
        layer[n] = value;
    }
    return table + 1;
}

// Unpacks the scaling of `count` channels: biases, then multipliers, offsets, and shifts unless
// `count` is 2. Returns what follows them.
UTVM_ONCE static int32_t *utvm_unpack_scaling(const int8_t *packed, int32_t *to, int32_t count,
                                              int32_t zero_point) {
    for (int32_t c = 0; c < count; c++, packed += 8, to++) {
        int32_t words[2];
        __builtin_memcpy(words, packed, 8);
        const int32_t shift = words[0] & 31;
        to[0] = words[0] >> 5;
        to[count] = words[1];
        to[2 * count] = (2 * zero_point + 1) * (1 << (shift - 1));
        if (count > 2) {
            to[3 * count] = shift;
        }
    }
    return to + (count > 2 ? 3 : 2) * count;
}
