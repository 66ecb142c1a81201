// LOG_SOFTMAX of rows of int8; `exponentials` has exp(-difference) as Q0.31.
// The output may lie on the input.

// log(x) as Q5.26 of an x >= 1 in Q12.19: a power of two, and a quotient of
// polynomials for what is left, which lies in [sqrt(1/2), 1).
static inline int32_t utvm_log(int32_t x) {
    const int32_t root = 1518500250;         // sqrt(1/2) as Q0.31
    const int32_t root_of_root = 1805811301; // its root
    const int32_t quarter = 1 << 23;         // as Q6.25
    // Raised as far as it goes, by itself and after a division by sqrt(2).
    const int32_t zeros = utvm_leading_zeros((uint32_t)x);
    int32_t left = utvm_high_product(utvm_saturated_shift(x, zeros - 1), root);
    left = utvm_saturated_shift(left, 1);
    int32_t power = (12 - zeros) * (1 << 25) + quarter;
    const int32_t headroom = utvm_leading_zeros((uint32_t)utvm_high_product(x, root)) - 1;
    const int32_t other_left = utvm_saturated_shift(x, headroom);
    const int32_t other_power = (12 - headroom) * (1 << 25) - quarter;
    left = other_left < left ? other_left : left;
    power = other_power > power ? other_power : power;

    const int32_t p = (int32_t)(((int64_t)left + root_of_root + 1) >> 1);
    const int32_t q = 2 * (left - root_of_root);
    const int32_t square = utvm_high_product(q, q);
    const int32_t above =
        utvm_high_product(q, left) + utvm_high_product(utvm_high_product(q, square), 117049297);
    const int32_t sum = 1057819769 + q + utvm_high_product(127690142, square);
    const int32_t below = utvm_high_product(p, sum) + utvm_high_product(638450708, q);
    const int32_t inverse = utvm_reciprocal((int32_t)((uint32_t)below + 0x80000000u));
    const int32_t part = utvm_high_product(utvm_rounded_shift(above, 6), inverse);
    return utvm_saturated_shift(utvm_high_product(power, 1488522236) + part, 1);
}

// `multiplier` and `shift` make Q5.26 of a difference, `inverse` and
// `inverse_shift` a difference of that; differences beyond `most` are too large.
static inline void utvm_log_softmax(const int8_t *input, const int32_t *exponentials,
                                    int32_t multiplier, int32_t shift, int32_t inverse,
                                    int32_t inverse_shift, int32_t most, int8_t *output,
                                    int32_t rows, int32_t depth) {
    for (int32_t row = 0; row < rows; row++, input += depth, output += depth) {
        const int32_t largest = utvm_largest_byte(input, depth, 0);
        int32_t total = 0; // as Q12.19, half up
        for (int32_t i = 0; i < depth; i++) {
            total += (int32_t)(((uint32_t)exponentials[largest - input[i]] + (1u << 11)) >> 12);
        }
        const int32_t log = utvm_log(total);
        int32_t least = utvm_requantize(log + INT32_MIN, inverse, inverse_shift);
        least = least > -most - 1 ? least : -most - 1;
        for (int32_t i = 0; i < depth; i++) {
            const int32_t difference = input[i] - largest;
            int32_t value = INT8_MIN;
            if (difference > least) {
                const int32_t scaled = utvm_requantize(difference, multiplier, shift);
                value = utvm_rounded_shift(utvm_add(scaled, -log), 22) + INT8_MAX;
                value = utvm_clamp(value, INT8_MIN, INT8_MAX);
            }
            output[i] = (int8_t)value;
        }
    }
}
