static inline float utvm_overlapped_float(float a, float b) {
    return a + b;
}
