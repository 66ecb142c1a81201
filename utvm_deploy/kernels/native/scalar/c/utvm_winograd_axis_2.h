// One axis of F(2x2, 3x3), with the points 0, 1, -1 and infinity: B^T d, then A^T m.
static inline void utvm_axis_2_input(const uint32_t *d, uint32_t *v, int32_t step, uint32_t added) {
    const uint32_t middle = d[2] + added;
    v[0] = d[0] - d[2] + added;
    v[step] = middle + d[1];
    v[2 * step] = middle - d[1];
    v[3 * step] = d[1] - d[3] + added;
}

static inline void utvm_axis_2_output(const uint32_t *m, int32_t step, uint32_t *y, int32_t to) {
    y[0] = m[0] + m[step] + m[2 * step];
    y[to] = m[step] - m[2 * step] - m[3 * step];
}
