static inline float utvm_fabsf(float x) {
    return utvm_float_of(utvm_bits_of(x) & 0x7fffffffu);
}

static inline float utvm_copysignf(float x, float y) {
    return utvm_float_of((utvm_bits_of(x) & 0x7fffffffu) | (utvm_bits_of(y) & 0x80000000u));
}
