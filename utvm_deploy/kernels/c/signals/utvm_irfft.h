// The inverse of utvm_rfft: rows of real numbers, twice "count" of them.
static inline void utvm_irfft_NAME(const NUMBER *input, const uint16_t *places,
                                   const NUMBER *twiddles, const NUMBER *apart,
                                   const uint8_t *radices, NUMBER *output, int32_t rows,
                                   int32_t count, int32_t stages) {
    for (int32_t row = 0; row < rows; row++, input += 2 * count + 2, output += 2 * count) {
        utvm_complex_NAME *made = (utvm_complex_NAME *)(void *)output;
        const NUMBER first = input[0], last = input[2 * count];
        const utvm_complex_NAME ends = {utvm_add_NAME(first, last), utvm_less_NAME(first, last)};
        made[places[0]] = utvm_parts_NAME(ends, 2);
        for (int32_t k = 1; k <= count / 2; k++) {
            const NUMBER *mirrored = input + 2 * (count - k);
            utvm_complex_NAME a = {input[2 * k], input[2 * k + 1]};
            utvm_complex_NAME other = {mirrored[0], utvm_minus_NAME(mirrored[1])};
            a = utvm_parts_NAME(a, 2);
            other = utvm_parts_NAME(other, 2);
            const utvm_complex_NAME sum = utvm_sum_NAME(a, other);
            const utvm_complex_NAME turned =
                utvm_turned_NAME(utvm_difference_NAME(a, other), apart + 2 * (k - 1));
            const utvm_complex_NAME less = utvm_difference_NAME(sum, turned);
            made[places[k]] = utvm_sum_NAME(sum, turned);
            made[places[count - k]].re = less.re;
            made[places[count - k]].im = utvm_minus_NAME(less.im);
        }
        utvm_fft_NAME(made, twiddles, radices, count, stages, 1);
        for (int32_t i = 0; i < 2 * count; i++) {
            output[i] = utvm_whole_NAME(output[i], 2 * count);
        }
    }
}
