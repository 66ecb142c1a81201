// The geometry of a depthwise convolution.
struct utvm_float_ring {
    int32_t rows;      // of the kernel
    int32_t row_bytes; // of the ring
    int32_t pixel_bytes;
    int32_t height, width, row_stride, top, left;
};

// Fill the ring with the rows under output row `oy` that are not there since the row before, and
// give the slot of the first one. Positions outside the image are 0.
static int32_t utvm_float_rows(const float *image, float *ring, int32_t oy,
                               const int32_t *geometry) {
    struct utvm_float_ring g;
    __builtin_memcpy(&g, geometry, sizeof g);
    const int32_t channels = g.pixel_bytes / 4, pitch = g.row_bytes / 4;
    const int32_t first = oy * g.row_stride, end = first + g.rows;
    int32_t row = oy > 0 ? end - g.row_stride : first;
    row = row < first ? first : row;
    for (; row < end; row++) {
        float *to = ring + row % g.rows * pitch;
        utvm_float_row(image, to, row - g.top, g.height, g.width, g.left, channels, pitch);
    }
    return first % g.rows;
}
