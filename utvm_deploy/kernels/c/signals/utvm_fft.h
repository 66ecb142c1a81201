// One fast Fourier transform of NAME numbers, in place: stages of radices 2 to 5 on values that
// lie in the order of the first stage. "twiddles" are the powers of the root of unity.
static inline utvm_complex_NAME utvm_sum_NAME(utvm_complex_NAME a, utvm_complex_NAME b) {
    const utvm_complex_NAME made = {utvm_add_NAME(a.re, b.re), utvm_add_NAME(a.im, b.im)};
    return made;
}

static inline utvm_complex_NAME utvm_difference_NAME(utvm_complex_NAME a, utvm_complex_NAME b) {
    const utvm_complex_NAME made = {utvm_less_NAME(a.re, b.re), utvm_less_NAME(a.im, b.im)};
    return made;
}

static inline utvm_complex_NAME utvm_parts_NAME(utvm_complex_NAME a, int32_t radix) {
    const utvm_complex_NAME made = {utvm_part_NAME(a.re, radix), utvm_part_NAME(a.im, radix)};
    return made;
}

// Three values that are already turned; "sine" is that of a third of a turn.
static inline void utvm_of_three_NAME(const utvm_complex_NAME *x, NUMBER sine,
                                      utvm_complex_NAME *made, int32_t span) {
    const utvm_complex_NAME sum = utvm_sum_NAME(x[1], x[2]),
                            less = utvm_difference_NAME(x[1], x[2]);
    const utvm_complex_NAME middle = {
        utvm_less_NAME(x[0].re, utvm_half_NAME(sum.re)),
        utvm_less_NAME(x[0].im, utvm_half_NAME(sum.im)),
    };
    const NUMBER re = utvm_times_NAME(less.re, sine), im = utvm_times_NAME(less.im, sine);
    made[0] = utvm_sum_NAME(x[0], sum);
    made[span].re = utvm_less_NAME(middle.re, im);
    made[span].im = utvm_add_NAME(middle.im, re);
    made[2 * span].re = utvm_add_NAME(middle.re, im);
    made[2 * span].im = utvm_less_NAME(middle.im, re);
}

static inline void utvm_of_four_NAME(const utvm_complex_NAME *x, int32_t is_inverse,
                                     utvm_complex_NAME *made, int32_t span) {
    const utvm_complex_NAME even = utvm_sum_NAME(x[0], x[2]), odd = utvm_sum_NAME(x[1], x[3]);
    const utvm_complex_NAME a = utvm_difference_NAME(x[0], x[2]);
    const utvm_complex_NAME b = utvm_difference_NAME(x[1], x[3]);
    const utvm_complex_NAME one = {utvm_add_NAME(a.re, b.im), utvm_less_NAME(a.im, b.re)};
    const utvm_complex_NAME other = {utvm_less_NAME(a.re, b.im), utvm_add_NAME(a.im, b.re)};
    made[0] = utvm_sum_NAME(even, odd);
    made[span] = is_inverse ? other : one;
    made[2 * span] = utvm_difference_NAME(even, odd);
    made[3 * span] = is_inverse ? one : other;
}

// "one" and "two" are a fifth of a turn and two fifths.
static inline void utvm_of_five_NAME(const utvm_complex_NAME *x, const NUMBER *one,
                                     const NUMBER *two, utvm_complex_NAME *made, int32_t span) {
    const utvm_complex_NAME s = utvm_sum_NAME(x[1], x[4]), d = utvm_difference_NAME(x[1], x[4]);
    const utvm_complex_NAME t = utvm_sum_NAME(x[2], x[3]), e = utvm_difference_NAME(x[2], x[3]);
    utvm_complex_NAME a, b;
    made[0] = utvm_sum_NAME(x[0], utvm_sum_NAME(s, t));
    a.re = utvm_add_NAME(utvm_add_NAME(x[0].re, utvm_times_NAME(s.re, one[0])),
                         utvm_times_NAME(t.re, two[0]));
    a.im = utvm_add_NAME(utvm_add_NAME(x[0].im, utvm_times_NAME(s.im, one[0])),
                         utvm_times_NAME(t.im, two[0]));
    b.re = utvm_add_NAME(utvm_times_NAME(d.im, one[1]), utvm_times_NAME(e.im, two[1]));
    b.im = utvm_less_NAME(utvm_minus_NAME(utvm_times_NAME(d.re, one[1])),
                          utvm_times_NAME(e.re, two[1]));
    made[span] = utvm_difference_NAME(a, b);
    made[4 * span] = utvm_sum_NAME(a, b);
    a.re = utvm_add_NAME(utvm_add_NAME(x[0].re, utvm_times_NAME(s.re, two[0])),
                         utvm_times_NAME(t.re, one[0]));
    a.im = utvm_add_NAME(utvm_add_NAME(x[0].im, utvm_times_NAME(s.im, two[0])),
                         utvm_times_NAME(t.im, one[0]));
    b.re = utvm_less_NAME(utvm_times_NAME(e.im, one[1]), utvm_times_NAME(d.im, two[1]));
    b.im = utvm_less_NAME(utvm_times_NAME(d.re, two[1]), utvm_times_NAME(e.re, one[1]));
    made[2 * span] = utvm_sum_NAME(a, b);
    made[3 * span] = utvm_difference_NAME(a, b);
}

static inline void utvm_fft_NAME(utvm_complex_NAME *values, const NUMBER *twiddles,
                                 const uint8_t *radices, int32_t count, int32_t stages,
                                 int32_t is_inverse) {
    utvm_complex_NAME x[5] = {{0, 0}};
    int32_t span = 1;
    for (int32_t stage = 0; stage < stages; stage++) {
        const int32_t radix = radices[stage], block = radix * span, step = count / block;
        for (int32_t first = 0; first < count; first += block) {
            for (int32_t i = 0; i < span; i++) {
                utvm_complex_NAME *at = values + first + i;
                x[0] = utvm_parts_NAME(at[0], radix);
                for (int32_t k = 1; k < radix; k++) {
                    const NUMBER *by = twiddles + 2 * (k * i * step);
                    x[k] = utvm_turned_NAME(utvm_parts_NAME(at[k * span], radix), by);
                }
                if (radix == 4) {
                    utvm_of_four_NAME(x, is_inverse, at, span);
                } else if (radix == 2) {
                    at[0] = utvm_sum_NAME(x[0], x[1]);
                    at[span] = utvm_difference_NAME(x[0], x[1]);
                } else if (radix == 3) {
                    utvm_of_three_NAME(x, twiddles[2 * (step * span) + 1], at, span);
                } else {
                    const NUMBER *one = twiddles + 2 * (step * span);
                    utvm_of_five_NAME(x, one, twiddles + 4 * (step * span), at, span);
                }
            }
        }
        span = block;
    }
}
