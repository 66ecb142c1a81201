// One axis of F(4x4, 3x3), with the points 0, 1, -1, 2, -2 and infinity: B^T d, then A^T m.
static inline void utvm_axis_4_input(const uint32_t *d, uint32_t *v, int32_t step, uint32_t added) {
    const uint32_t even = d[4] - 4u * d[2] + added, odd = d[3] - 4u * d[1];
    const uint32_t outer = d[4] - d[2] + added, twice = 2u * (d[3] - d[1]);
    v[0] = 4u * (d[0] - d[2]) + outer;
    v[step] = even + odd;
    v[2 * step] = even - odd;
    v[3 * step] = outer + twice;
    v[4 * step] = outer - twice;
    v[5 * step] = d[5] - d[3] - 2u * twice + added;
}

static inline void utvm_axis_4_output(const uint32_t *m, int32_t step, uint32_t *y, int32_t to) {
    const uint32_t one = m[step] + m[2 * step], other = m[step] - m[2 * step];
    const uint32_t two = m[3 * step] + m[4 * step], rest = m[3 * step] - m[4 * step];
    y[0] = 2u * m[0] + 4u * one + two;
    y[to] = 4u * other + 2u * rest;
    y[2 * to] = 4u * (one + two);
    y[3 * to] = 4u * other + 8u * (rest + m[5 * step]);
}
