static inline float *utvm_float_zeros(float *to, int32_t count) {
    for (; count > 0; count--) {
        *to++ = 0.0f;
    }
    return to;
}

// Copy row `y` of an image behind `left` pixels of zeros; zeros follow up to `pitch` values.
static inline void utvm_float_row(const float *image, float *to, int32_t y, int32_t height,
                                  int32_t width, int32_t left, int32_t channels, int32_t pitch) {
    if (y < 0 || y >= height) {
        utvm_float_zeros(to, pitch);
        return;
    }
    float *const end = to + pitch;
    to = utvm_float_zeros(to, left * channels);
    const float *from = image + y * width * channels;
    const int32_t space = pitch - left * channels;
    int32_t count = width * channels < space ? width * channels : space;
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
    utvm_float_zeros(to, (int32_t)(end - to));
}
