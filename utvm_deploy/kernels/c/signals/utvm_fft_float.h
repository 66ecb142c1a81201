// Complex numbers of float32.
typedef struct {
    float re, im;
} utvm_complex_float;

static inline float utvm_add_float(float a, float b) {
    return a + b;
}
static inline float utvm_less_float(float a, float b) {
    return a - b;
}
static inline float utvm_minus_float(float a) {
    return -a;
}
static inline float utvm_half_float(float a) {
    return a * 0.5f;
}
static inline float utvm_half_sum_float(float a, float b) {
    return (a + b) * 0.5f;
}
static inline float utvm_half_less_float(float a, float b) {
    return (a - b) * 0.5f;
}
static inline float utvm_times_float(float a, float b) {
    return a * b;
}
// Nothing is divided: float32 has room for all sums.
static inline float utvm_part_float(float a, int32_t radix) {
    (void)radix;
    return a;
}
static inline utvm_complex_float utvm_turned_float(utvm_complex_float a, const float *by) {
    const utvm_complex_float made = {a.re * by[0] - a.im * by[1], a.re * by[1] + a.im * by[0]};
    return made;
}
// What an inverse transform divides by.
static inline float utvm_whole_float(float a, int32_t length) {
    return a / (float)length;
}
