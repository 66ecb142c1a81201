// Transforms of rows of real numbers, as complex ones of half the length. Zeros follow the
// numbers of a row up to twice "count".
static inline void utvm_rfft_NAME(const NUMBER *input, const uint16_t *places,
                                  const NUMBER *twiddles, const NUMBER *apart,
                                  const uint8_t *radices, NUMBER *output, int32_t rows,
                                  int32_t numbers, int32_t count, int32_t stages) {
    for (int32_t row = 0; row < rows; row++, input += numbers, output += 2 * count + 2) {
        utvm_complex_NAME *made = (utvm_complex_NAME *)(void *)output;
        for (int32_t k = 0; k < count; k++) {
            made[places[k]].re = 2 * k < numbers ? input[2 * k] : (NUMBER)0;
            made[places[k]].im = 2 * k + 1 < numbers ? input[2 * k + 1] : (NUMBER)0;
        }
        utvm_fft_NAME(made, twiddles, radices, count, stages, 0);
        const utvm_complex_NAME ends = utvm_parts_NAME(made[0], 2);
        made[0].re = utvm_add_NAME(ends.re, ends.im);
        made[count].re = utvm_less_NAME(ends.re, ends.im);
        made[0].im = made[count].im = 0;
        for (int32_t k = 1; k <= count / 2; k++) {
            utvm_complex_NAME other = made[count - k];
            other.im = utvm_minus_NAME(other.im);
            const utvm_complex_NAME a = utvm_parts_NAME(made[k], 2);
            other = utvm_parts_NAME(other, 2);
            const utvm_complex_NAME sum = utvm_sum_NAME(a, other);
            const utvm_complex_NAME turned =
                utvm_turned_NAME(utvm_difference_NAME(a, other), apart + 2 * (k - 1));
            made[k].re = utvm_half_sum_NAME(sum.re, turned.re);
            made[k].im = utvm_half_sum_NAME(sum.im, turned.im);
            made[count - k].re = utvm_half_less_NAME(sum.re, turned.re);
            made[count - k].im = utvm_half_less_NAME(turned.im, sum.im);
        }
    }
}
