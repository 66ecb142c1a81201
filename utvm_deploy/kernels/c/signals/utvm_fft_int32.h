// Complex numbers of 31 fractional bits. Sums wrap around, and products are rounded.
typedef struct {
    int32_t re, im;
} utvm_complex_int32;

static inline int32_t utvm_add_int32(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
static inline int32_t utvm_less_int32(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a - (uint32_t)b);
}
static inline int32_t utvm_minus_int32(int32_t a) {
    return utvm_less_int32(0, a);
}
static inline int32_t utvm_half_int32(int32_t a) {
    return a >> 1;
}
static inline int32_t utvm_half_sum_int32(int32_t a, int32_t b) {
    return utvm_add_int32(a, b) >> 1;
}
static inline int32_t utvm_half_less_int32(int32_t a, int32_t b) {
    return utvm_less_int32(a, b) >> 1;
}
static inline int32_t utvm_times_int32(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}
// Each stage of a radix divides by it, so that no sum of the stage is too large.
static inline int32_t utvm_part_int32(int32_t a, int32_t radix) {
    return utvm_times_int32(a, INT32_MAX / radix);
}
static inline utvm_complex_int32 utvm_turned_int32(utvm_complex_int32 a, const int32_t *by) {
    const int64_t re = (int64_t)a.re * by[0] - (int64_t)a.im * by[1];
    const int64_t im = (int64_t)a.re * by[1] + (int64_t)a.im * by[0];
    const utvm_complex_int32 made = {(int32_t)((re + (1 << 30)) >> 31),
                                     (int32_t)((im + (1 << 30)) >> 31)};
    return made;
}
// The inverse of a transform whose stages divide needs no further factor.
static inline int32_t utvm_whole_int32(int32_t a, int32_t length) {
    (void)length;
    return a;
}
