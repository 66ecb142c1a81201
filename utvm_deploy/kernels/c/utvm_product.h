// The product of real values along the middle one of three dimensions: rescaled after
// each factor, in the order of the elements.
static inline void utvm_product_ELEMENT(const ELEMENT *input, int32_t zero_point,
                                        int32_t multiplier, int32_t shift,
                                        int32_t output_zero_point, ELEMENT *output, int32_t outer,
                                        int32_t length, int32_t inner, int32_t low, int32_t high) {
    for (int32_t i = 0; i < outer; i++, input += length * inner) {
        for (int32_t j = 0; j < inner; j++) {
            int32_t product = input[j] - zero_point;
            for (int32_t k = 1; k < length; k++) {
                int64_t wide = (int64_t)product * (input[k * inner + j] - zero_point);
                product = utvm_requantize_wide(wide, multiplier, shift);
            }
            product = utvm_add(utvm_requantize_wide(product, multiplier, shift), output_zero_point);
            *output++ = (ELEMENT)utvm_clamp(product, low, high);
        }
    }
}
