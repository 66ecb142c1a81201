// A transform of twice "count" real numbers, in place: it begins as one of complex numbers, which
// lie in the order of the first stage, and whose results are then taken apart.
static inline void utvm_real_fft_NAME(utvm_complex_NAME *made, const NUMBER *twiddles,
                                      const NUMBER *apart, const uint8_t *radices, int32_t count,
                                      int32_t stages) {
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
