// What windows see of the channels of a group. The geometry: rows, columns and
// channels of the image, columns of the output; rows and columns of the window,
// of its strides, of its dilations; its first row and column, negated; channels
// of a group.
static void utvm_mve_group_gather(const int8_t *image, const int32_t *geometry, int32_t first,
                                  int32_t count, int32_t border, int8_t *to) {
    const int32_t height = geometry[0], width = geometry[1], channels = geometry[2];
    int32_t oy = first / geometry[3];
    int32_t ox = first - oy * geometry[3];
    const int32_t seen = geometry[12], right = geometry[9] * channels;
    for (; count > 0; count--) {
        int32_t y = oy * geometry[6] - geometry[10];
        const int32_t x = ox * geometry[7] - geometry[11];
        const int32_t last = x + (geometry[5] - 1) * geometry[9];
        for (int32_t ky = 0; ky < geometry[4]; ky++, y += geometry[8]) {
            const int8_t *pixel = image + (y * width + x) * channels;
            if (y >= 0 && y < height && x >= 0 && last < width) {
                for (int32_t kx = geometry[5]; kx > 0; kx--, pixel += right) {
                    to = utvm_bytes_copy(to, pixel, seen);
                }
                continue;
            }
            for (int32_t at = x; at <= last; at += geometry[9], pixel += right) {
                if (y < 0 || y >= height || at < 0 || at >= width) {
                    to = utvm_bytes_fill(to, border, seen);
                } else {
                    to = utvm_bytes_copy(to, pixel, seen);
                }
            }
        }
        if (++ox == geometry[3]) {
            ox = 0;
            oy++;
        }
    }
}

// A convolution in groups: for some pixels at a time each group's product.
static void utvm_mve_grouped_by_PRODUCT(const int8_t *image, const int32_t *geometry,
                                        const int8_t *weights, const int32_t *scaling,
                                        const int32_t *limits, int32_t border, int8_t *output,
                                        int8_t *windows, int8_t *tile, int32_t batch,
                                        int32_t pixels, int32_t step, int32_t groups, int32_t made,
                                        int32_t is_gathered, int32_t weights_bytes,
                                        int32_t scaling_words) {
    const int32_t channels = geometry[2], seen = geometry[12];
    const int32_t depth = geometry[4] * geometry[5] * seen;
    for (int32_t n = 0; n < batch; n++, image += geometry[0] * geometry[1] * channels) {
        for (int32_t first = 0; first < pixels; first += step) {
            const int32_t count = pixels - first < step ? pixels - first : step;
            for (int32_t g = 0; g < groups; g++) {
                const int8_t *from = image + first * channels + g * seen;
                if (is_gathered) {
                    utvm_mve_group_gather(image + g * seen, geometry, first, count, border,
                                          windows);
                    from = windows;
                }
                PRODUCT(from, weights + g * weights_bytes, scaling + g * scaling_words, limits,
                        tile, count, made, depth, is_gathered ? depth : channels);
                for (int32_t p = 0; p < count; p++) {
                    utvm_bytes_copy(output + (p * groups + g) * made, tile + p * made, made);
                }
            }
            output += count * groups * made;
        }
    }
}
