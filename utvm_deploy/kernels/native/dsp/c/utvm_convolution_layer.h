// A convolution of any shape. The scratch takes the scaling, and then the patches.
UTVM_ONCE static void utvm_convolution_layer(const int8_t *image, const int8_t *table,
                                             int8_t *output, int32_t *scratch) {
    int32_t layer[UTVM_NUMBERS];
    table = utvm_unpack_layer(table, layer);
    const int32_t channels = layer[UTVM_OUTPUTS];
    const int32_t depth = (layer[UTVM_ROWS] * layer[UTVM_COLUMNS] * layer[UTVM_INPUTS] + 7) / 8 * 8;
    int32_t *end = scratch;
    for (int32_t c = 0; c < channels; c += 2, table += 16) {
        end = utvm_unpack_scaling(table, end, 2, layer[UTVM_ZERO_POINT]);
    }
    int16_t *patches = (int16_t *)(void *)end;
    for (int32_t n = layer[UTVM_BATCH]; n > 0; n--) {
        const int32_t pixels = layer[UTVM_OUTPUT_HEIGHT] * layer[UTVM_OUTPUT_WIDTH];
        int32_t count = layer[UTVM_BLOCK];
        for (int32_t pixel = 0; pixel < pixels; pixel += count) {
            count = pixels - pixel < count ? pixels - pixel : count;
            utvm_gather(image, patches, pixel, count, layer[UTVM_BORDER], layer);
            utvm_gemm_8_unshifted(patches, table, scratch, layer + UTVM_LOW, output, count,
                                  channels, depth);
            output += count * channels;
        }
        image += layer[UTVM_HEIGHT] * layer[UTVM_WIDTH] * layer[UTVM_INPUTS];
    }
}
