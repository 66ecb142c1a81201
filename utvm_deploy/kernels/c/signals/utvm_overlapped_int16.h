static inline int16_t utvm_overlapped_int16(int16_t a, int16_t b) {
    return (int16_t)utvm_clamp(a + b, INT16_MIN, INT16_MAX);
}
