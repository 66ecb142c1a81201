static inline float utvm_sqrtf(float x) {
    const uint32_t bits = utvm_bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return utvm_quiet(bits);
    }
    if (bits > 0x80000000u) {
        return utvm_not_a_number();
    }
    // The instruction, because __builtin_sqrtf may call the C library.
#if defined(__GNUC__) && defined(__ARM_FP) && __ARM_FP & 4 && !defined(__aarch64__)
    float root;
    __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x));
    return root;
#elif defined(__GNUC__) && defined(__aarch64__)
    float root;
    __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(x));
    return root;
#elif defined(__GNUC__) && defined(__SSE__)
    float root;
    __asm__("sqrtss %1, %0" : "=x"(root) : "x"(x));
    return root;
#else
    if (bits == 0u || bits >= 0x7f800000u) {
        return x;
    }
    uint32_t mantissa;
    const int32_t exponent = utvm_split_float(bits, &mantissa);
    const uint32_t root = utvm_root_of((uint64_t)mantissa << (31 + (exponent & 1)));
    return utvm_join_float(0u, (exponent - (exponent & 1)) / 2, root);
#endif
}
