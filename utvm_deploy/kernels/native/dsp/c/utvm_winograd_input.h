// V of a group: B^T d, whose four rows are d0 - d2, d1 + d2, d2 - d1 and d1 - d3, times B.
// `row` bytes are from row to row of the image, `stride` from position to position.
UTVM_ONCE static void NAME(const int8_t *image, int32_t *to, int32_t quads, int32_t row,
                           int32_t stride) {
    const int8_t *const d1 = image + row;
    const int8_t *const d2 = d1 + row;
    NAME_difference(image, d2, to, quads, stride, CHANNELS, TILES, 0);
    NAME_sum(d1, d2, to + stride, quads, stride, CHANNELS, TILES, 1);
    NAME_difference(d2, d1, to + 2 * stride, quads, stride, CHANNELS, TILES, 0);
    NAME_difference(d1, d2 + row, to + 3 * stride, quads, stride, CHANNELS, TILES, 0);
}
