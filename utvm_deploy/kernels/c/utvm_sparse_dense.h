// The outputs of a row of a fully connected layer from its sums, which are `apart` from each other.
static inline void utvm_sparse_dense(const int32_t *sums, const int32_t *bias,
                                     const int32_t *scaling, const int32_t *limits, int8_t *output,
                                     int32_t outputs, int32_t apart, int32_t step) {
    for (int32_t o = 0; o < outputs; o++, sums += apart, scaling += step) {
        int32_t sum = utvm_add(*sums, bias[o]);
        int32_t value = utvm_scale_wide(sum, scaling[0], scaling[1], scaling[2], scaling[3]);
        output[o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
    }
}
