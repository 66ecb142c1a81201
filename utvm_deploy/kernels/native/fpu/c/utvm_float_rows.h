// The geometry of a depthwise convolution.
struct utvm_float_ring {
    int32_t rows;      // of the kernel
    int32_t row_bytes; // of the ring
    int32_t pixel_bytes;
    int32_t height, width, row_stride, top, left;
};

static inline float *utvm_float_zeros(float *to, int32_t count) {
    for (; count > 0; count--) {
        *to++ = 0.0f;
    }
    return to;
}

// Fill the ring with the rows under output row `oy` that are not there since the row before, and
// give the slot of the first one. Positions outside the image are 0.
static int32_t utvm_float_rows(const float *image, float *ring, int32_t oy,
                               const int32_t *geometry) {
    struct utvm_float_ring g;
    __builtin_memcpy(&g, geometry, sizeof g);
    const int32_t channels = g.pixel_bytes / 4, pitch = g.row_bytes / 4;
    const int32_t columns = pitch / channels;
    const int32_t first = oy * g.row_stride, end = first + g.rows;
    int32_t row = oy > 0 ? end - g.row_stride : first;
    row = row < first ? first : row;
    int32_t inside = columns - g.left;
    inside = inside < g.width ? inside : g.width;
    for (; row < end; row++) {
        float *to = ring + row % g.rows * pitch;
        const int32_t y = row - g.top;
        if (y < 0 || y >= g.height) {
            utvm_float_zeros(to, pitch);
            continue;
        }
        to = utvm_float_zeros(to, g.left * channels);
        const float *from = image + y * g.width * channels;
        int32_t count = inside * channels;
        for (; count >= 4; count -= 4, from += 4, to += 4) {
            const float a = from[0], b = from[1], c = from[2], d = from[3];
            to[0] = a;
            to[1] = b;
            to[2] = c;
            to[3] = d;
        }
        for (; count > 0; count--) {
            *to++ = *from++;
        }
        utvm_float_zeros(to, (columns - g.left - inside) * channels);
    }
    return first % g.rows;
}
