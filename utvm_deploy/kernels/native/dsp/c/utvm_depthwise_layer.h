// A depthwise convolution of any shape. The scratch takes the table, and then the rows under a
// window, unless they are read in place.
UTVM_ONCE static void utvm_depthwise_layer(const int8_t *image, const int8_t *table, int8_t *output,
                                           int32_t *scratch) {
    int32_t layer[UTVM_NUMBERS];
    table = utvm_unpack_layer(table, layer);
    const int32_t inputs = layer[UTVM_INPUTS];
    const int32_t channels = layer[UTVM_OUTPUTS];
    const int32_t kernel_rows = layer[UTVM_ROWS];
    const int32_t kernel_columns = layer[UTVM_COLUMNS];
    const int32_t pitch = (channels + 3) / 4 * 4;
    const int32_t row = layer[UTVM_WIDTH] * inputs;
    const int8_t *taps = table + 8 * pitch;
    int32_t *end = scratch;
    for (int32_t c = 0; c < pitch; c += 4, table += 32) {
        for (int32_t t = kernel_rows * kernel_columns; t > 0; t--, taps += 4) {
            *end++ = (int32_t)((uint32_t)(uint16_t)taps[0] | (uint32_t)taps[2] << 16);
            *end++ = (int32_t)((uint32_t)(uint16_t)taps[1] | (uint32_t)taps[3] << 16);
        }
        end = utvm_unpack_scaling(table, end, 4, layer[UTVM_ZERO_POINT]);
    }
    for (int32_t n = layer[UTVM_BATCH]; n > 0; n--) {
        int32_t y = 0;
        for (int32_t left = layer[UTVM_OUTPUT_HEIGHT]; left > 0; left--) {
            const int8_t *rows = image + y * row;
            int32_t apart = layer[UTVM_ROW_DILATION] * row;
            if (layer[UTVM_BLOCK] > 0) {
                utvm_rows_copy(image, (int8_t *)end, y - layer[UTVM_TOP], -layer[UTVM_LEFT],
                               layer[UTVM_HEIGHT], layer[UTVM_WIDTH], inputs, channels / inputs,
                               pitch, kernel_rows, layer[UTVM_ROW_DILATION], layer[UTVM_BLOCK],
                               layer[UTVM_BORDER]);
                rows = (int8_t *)end;
                apart = layer[UTVM_BLOCK] * pitch;
            }
            FUNCTION(rows, scratch, layer + UTVM_LOW, output, apart,
                     layer[UTVM_COLUMN_DILATION] * pitch, layer[UTVM_COLUMN_STRIDE] * pitch,
                     layer[UTVM_OUTPUT_WIDTH], channels, kernel_rows, kernel_columns);
            output += layer[UTVM_OUTPUT_WIDTH] * channels;
            y += layer[UTVM_ROW_STRIDE];
        }
        image += layer[UTVM_HEIGHT] * row;
    }
}
