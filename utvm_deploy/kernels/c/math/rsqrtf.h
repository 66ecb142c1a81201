static inline float utvm_rsqrtf(float x) {
    return 1.0f / utvm_sqrtf(x);
}
