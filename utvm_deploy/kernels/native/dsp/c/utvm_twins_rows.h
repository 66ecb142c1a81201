// The geometry of a depthwise convolution over twins.
struct utvm_twins_window {
    int32_t height, row, channels; // of the image; a row in bytes
    int32_t columns;               // of the image that windows see
    int32_t left, pitch;           // columns of a row of words: before the image, and all
    int32_t rows;                  // rows of words of a channel
    int32_t kept;                  // rows of the image that the next strip sees, too
};

// Bytes of some channels of a row: those at `from`, or the border.
static void utvm_keep_row(int8_t *to, const int8_t *from, int32_t border, int32_t channels,
                          const struct utvm_twins_window *w) {
    uint32_t word = (uint32_t)(border & 0xff) * 0x01010101u;
    for (int32_t x = 0; x < w->columns; x++, to += w->channels) {
        for (int32_t left = channels; left > 0; left -= 4) {
            // Of another number than multiples of four, the last four once more.
            const int32_t c = left > 4 ? channels - left : channels - 4;
            if (from != 0) {
                __builtin_memcpy(&word, from + x * w->channels + c, 4);
            }
            __builtin_memcpy(to + c, &word, 4);
        }
    }
}

// Fill the columns of words beside the image.
UTVM_ONCE static void utvm_fill_beside(int32_t *words, int32_t border, int32_t channels,
                                       const int32_t *geometry) {
    if (channels <= 0) {
        return;
    }
    struct utvm_twins_window w;
    __builtin_memcpy(&w, geometry, sizeof w);
    const uint32_t edge = (uint32_t)(border + 128) | (uint32_t)border << 24;
    const int32_t rows = channels * w.rows;
    for (int32_t x = 0; x < w.pitch; x++) {
        if (x == w.left) {
            x += w.columns;
        }
        int32_t *to = words + x;
        for (int32_t n = x < w.pitch ? rows : 0; n > 0; n--, to += w.pitch) {
            *to = (int32_t)edge;
        }
    }
}

// Finds a row of the image: there, in row `r` of the kept ones, or on the border.
UTVM_ONCE static void utvm_twins_row(const int8_t **found, const int8_t *image, int8_t *kept,
                                     int32_t row, int32_t r, int32_t channels, int32_t border,
                                     const int32_t *geometry) {
    struct utvm_twins_window w;
    __builtin_memcpy(&w, geometry, sizeof w);
    if (row < 0 || row >= w.height) {
        // The kept rows were read before.
        utvm_keep_row(kept, 0, border, channels, &w);
        *found = kept;
    } else {
        *found = r < w.kept ? kept + r * w.row : image + row * w.row;
    }
}
