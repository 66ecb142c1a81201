// What a window sees, outside the image zero. The geometry: batch, rows, columns
// and channels of the image; rows and columns of the output, of the window, of
// its strides, of its dilations; its first row and column, negated; outputs; the
// pitch of the weights; whether sums fit 32 bits while they are scaled; whether
// pixels lie as rows do.
static inline void utvm_wide_gather(const int16_t *image, const int32_t *geometry, int32_t y,
                                    int32_t x, int16_t *row) {
    const int32_t channels = geometry[3];
    for (int32_t ky = 0; ky < geometry[6]; ky++) {
        const int32_t from_row = y * geometry[8] + ky * geometry[10] - geometry[12];
        for (int32_t kx = 0; kx < geometry[7]; kx++, row += channels) {
            const int32_t column = x * geometry[9] + kx * geometry[11] - geometry[13];
            if (from_row < 0 || from_row >= geometry[1] || column < 0 || column >= geometry[2]) {
                for (int32_t c = 0; c < channels; c++) {
                    row[c] = 0;
                }
                continue;
            }
            const int16_t *pixel = image + (from_row * geometry[2] + column) * channels;
            int32_t c = 0;
            for (; c + 4 <= channels; c += 4) {
                __builtin_memcpy(row + c, pixel + c, 8);
            }
            for (; c < channels; c++) {
                row[c] = pixel[c];
            }
        }
    }
}

// Outputs whose sums fit 32 bits: the same as by utvm_requantize_wide.
static inline void utvm_wide_short(const int16_t *row, const int8_t *weights, int32_t pitch,
                                   int32_t outputs, const int64_t *bias, const int32_t *multiplier,
                                   const int32_t *shift, int32_t low, int32_t high,
                                   int16_t *output) {
    for (int32_t first = 0; first < outputs; first += 4) {
        const int32_t end = outputs - first < 4 ? outputs : first + 4;
        int32_t sums[4];
        utvm_wide_four(row, weights + first * pitch, pitch, pitch, sums);
        for (int32_t o = first; o < end; o++) {
            int32_t value = sums[o - first] + (int32_t)bias[o];
            int32_t bits = -1 - shift[o];
            int64_t product = (int64_t)value * (multiplier[o] << 16);
            value = ((int32_t)(product >> 32) + (1 << (bits - 1))) >> bits;
            output[o] = (int16_t)utvm_clamp(value, low, high);
        }
    }
}

static inline void utvm_wide_long(const int16_t *row, const int8_t *weights, int32_t pitch,
                                  int32_t outputs, const int64_t *bias, const int32_t *multiplier,
                                  const int32_t *shift, int32_t low, int32_t high, int16_t *output,
                                  int64_t *totals) {
    utvm_wide_rows(row, weights, pitch, outputs, totals);
    for (int32_t o = 0; o < outputs; o++) {
        int32_t value = utvm_requantize_wide(totals[o] + bias[o], multiplier[o], shift[o]);
        output[o] = (int16_t)utvm_clamp(value, low, high);
    }
}

static void utvm_wide_conv(const int16_t *image, const int32_t *geometry, const int8_t *weights,
                           const int64_t *bias, const int32_t *multiplier, const int32_t *shift,
                           int32_t low, int32_t high, int16_t *output, int16_t *row,
                           int64_t *totals) {
    const int32_t outputs = geometry[14];
    const int32_t pitch = geometry[15];
    const int32_t depth = geometry[6] * geometry[7] * geometry[3];
    for (int32_t i = depth; i < pitch; i++) {
        row[i] = 0;
    }
    for (int32_t n = 0; n < geometry[0]; n++, image += geometry[1] * geometry[2] * geometry[3]) {
        for (int32_t y = 0; y < geometry[4]; y++) {
            for (int32_t x = 0; x < geometry[5]; x++, output += outputs) {
                const int16_t *vector = row;
                if (geometry[17]) {
                    vector = image + (y * geometry[8] * geometry[2] + x * geometry[9]) * pitch;
                } else {
                    utvm_wide_gather(image, geometry, y, x, row);
                }
                if (geometry[16]) {
                    utvm_wide_short(vector, weights, pitch, outputs, bias, multiplier, shift, low,
                                    high, output);
                } else {
                    utvm_wide_long(vector, weights, pitch, outputs, bias, multiplier, shift, low,
                                   high, output, totals);
                }
            }
        }
    }
}
