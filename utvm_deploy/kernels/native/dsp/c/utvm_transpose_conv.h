// A transposed convolution as an ordinary one: gathered, multiplied and put
// where it belongs. The numbers are those of utvm_scatter_blocks.
static void utvm_transpose_conv_by_PRODUCT(const int8_t *image, const int32_t *geometry,
                                           const int8_t *weights, const int32_t *scaling,
                                           const int32_t *limits, int32_t border,
                                           const int32_t *numbers, int8_t *output, int16_t *patches,
                                           int8_t *tile) {
    for (int32_t first = 0; first < numbers[1]; first += numbers[2]) {
        const int32_t left = numbers[1] - first;
        const int32_t count = left < numbers[2] ? left : numbers[2];
        utvm_gather(image, patches, first, count, border, geometry);
        PRODUCT(patches, weights, scaling, limits, tile, count, numbers[3], numbers[4]);
        utvm_scatter_blocks(tile, numbers, first, count, output);
    }
}
