// Complex numbers of 15 fractional bits. Sums wrap around, and products are rounded.
typedef struct {
    int16_t re, im;
} utvm_complex_int16;

static inline int16_t utvm_add_int16(int16_t a, int16_t b) {
    return (int16_t)(a + b);
}
static inline int16_t utvm_less_int16(int16_t a, int16_t b) {
    return (int16_t)(a - b);
}
static inline int16_t utvm_minus_int16(int16_t a) {
    return (int16_t)-a;
}
static inline int16_t utvm_half_int16(int16_t a) {
    return (int16_t)(a >> 1);
}
static inline int16_t utvm_half_sum_int16(int16_t a, int16_t b) {
    return (int16_t)((a + b) >> 1);
}
static inline int16_t utvm_half_less_int16(int16_t a, int16_t b) {
    return (int16_t)((a - b) >> 1);
}
static inline int16_t utvm_times_int16(int16_t a, int16_t b) {
    return (int16_t)((a * b + (1 << 14)) >> 15);
}
// Each stage of a radix divides by it, so that no sum of the stage is too large.
static inline int16_t utvm_part_int16(int16_t a, int32_t radix) {
    return utvm_times_int16(a, (int16_t)(INT16_MAX / radix));
}
static inline utvm_complex_int16 utvm_turned_int16(utvm_complex_int16 a, const int16_t *by) {
    const int32_t re = a.re * by[0] - a.im * by[1], im = a.re * by[1] + a.im * by[0];
    const utvm_complex_int16 made = {(int16_t)((re + (1 << 14)) >> 15),
                                     (int16_t)((im + (1 << 14)) >> 15)};
    return made;
}
// The inverse of a transform whose stages divide needs no further factor.
static inline int16_t utvm_whole_int16(int16_t a, int32_t length) {
    (void)length;
    return a;
}
