// A long short-term memory of int8 with a cell state of int16: bit for bit that
// of LiteRT's reference kernel. Numbers of 16 bits are fractions of 2^15, but
// for inputs of functions, which have as many integer bits as they say.

static inline int32_t utvm_int16(int32_t value) {
    value = value < -32768 ? -32768 : value;
    return value > 32767 ? 32767 : value;
}

// left * right / 2^15, half up, saturated.
static inline int32_t utvm_product16(int32_t left, int32_t right) {
    return utvm_int16((left * right + (1 << 14)) >> 15);
}

// value / 2^bits, half away from zero, for values far below 2^31 and 1 <= bits.
static inline int32_t utvm_rounded16(int32_t value, int32_t bits) {
    return (value + (value >> 31) + (1 << (bits - 1))) >> bits;
}

// exp(value) for value <= 0: a polynomial around -1/8 for what is left of
// quarters, times a factor for every bit of how many quarters there are.
static inline int32_t utvm_exp16(int32_t value, int32_t integer_bits) {
    static const int16_t factors[7] = {25520, 19875, 12055, 4435, 600, 11, 0};
    const int32_t center = 28918; // exp(-1/8)
    const int32_t third = 10923;
    int32_t fraction_bits = 15 - integer_bits;
    if (value == 0) {
        return 32767;
    }
    if (integer_bits > 5 && value < -(1 << (20 - integer_bits))) {
        return 0;
    }
    int32_t quarter = 1 << (fraction_bits - 2);
    int32_t rest = (value & (quarter - 1)) - quarter;
    int32_t x = utvm_int16(rest * (1 << integer_bits)) + (1 << 12);
    int32_t x2 = utvm_product16(x, x);
    int32_t x3 = utvm_product16(x2, x);
    int32_t x4 = utvm_product16(x2, x2);
    int32_t higher = utvm_product16(utvm_rounded16(x4, 2) + x3, third) + x2;
    int32_t result = utvm_int16(center + utvm_product16(center, x + utvm_rounded16(higher, 1)));
    for (int32_t i = 0; i < 7 && i < integer_bits + 2; i++) {
        int32_t lower = utvm_product16(result, factors[i]);
        result = ((rest - value) >> (fraction_bits - 2 + i)) & 1 ? lower : result;
    }
    return result;
}

// 2 / (1 + value) for a value in [0, 1], with two integer bits: three
// Newton-Raphson steps on 48/17 - 32/17 d.
static inline int32_t utvm_twice_inverse16(int32_t value) {
    int32_t half = (value + 32768) / 2;
    int32_t x = 23130 + utvm_product16(half, -15420);
    for (int32_t step = 0; step < 3; step++) {
        int32_t error = (1 << 13) - utvm_product16(half, x);
        x += utvm_int16(utvm_product16(x, error) * 4);
    }
    return x;
}

static inline int32_t utvm_logistic16(int32_t value) {
    if (value == 0) {
        return 1 << 14;
    }
    int32_t magnitude = value < 0 ? -value : value;
    int32_t share = utvm_int16(utvm_twice_inverse16(utvm_exp16(-magnitude, 3)) * 2);
    return value > 0 ? share : 32767 - share;
}

static inline int32_t utvm_tanh16(int32_t value, int32_t integer_bits) {
    if (value == 0) {
        return 0;
    }
    // exp(2 x) is exp(x) of the same number with one more integer bit.
    int32_t power = utvm_exp16(value < 0 ? value : -value, integer_bits + 1);
    int32_t share = utvm_int16((utvm_twice_inverse16(power) - (1 << 13)) * 4);
    return value < 0 ? -share : share;
}

// value / 2^bits, half away from zero; also for 0 bits.
static inline int32_t utvm_divided(int32_t value, int32_t bits) {
    return bits > 0 ? utvm_rounded_shift(value, bits) : value;
}

// One step of one sequence. Gates are those of input, forgetting, cell, output;
// numbers are, for each, the multipliers and shifts by input and by hidden
// state, and then those of the hidden state, its zero point, the bits to shift
// a new cell by, the integer bits of a cell, and its largest magnitude or 0.
static inline void utvm_lstm_step(const int8_t *input, const int8_t *input_weights,
                                  const int8_t *hidden_weights, const int32_t *bias,
                                  const int32_t *numbers, int32_t inputs, int32_t cells,
                                  int8_t *hidden, int16_t *cell, int16_t *gates, int32_t *sums) {
    for (int32_t gate = 0; gate < 4; gate++) {
        const int32_t *scaling = numbers + 4 * gate;
        const int32_t first = gate * cells;
        utvm_dot_rows(input, input_weights + first * inputs, inputs, cells, sums);
        utvm_dot_rows(hidden, hidden_weights + first * cells, cells, cells, sums + cells);
        for (int32_t c = 0; c < cells; c++) {
            int32_t row = first + c;
            int32_t total = utvm_add(sums[c], bias[row]);
            int32_t value = utvm_int16(utvm_requantize(total, scaling[0], scaling[1]));
            total = utvm_add(sums[cells + c], bias[4 * cells + row]);
            value = utvm_int16(utvm_requantize(total, scaling[2], scaling[3]) + value);
            gates[row] = (int16_t)(gate == 2 ? utvm_tanh16(value, 3) : utvm_logistic16(value));
        }
    }
    const int32_t *last = numbers + 16;
    for (int32_t c = 0; c < cells; c++) {
        int32_t kept = utvm_rounded16(gates[cells + c] * cell[c], 15);
        int32_t added = utvm_divided(gates[c] * gates[2 * cells + c], last[3]);
        int32_t value = utvm_int16((int16_t)kept + (int16_t)added);
        if (last[5] > 0) {
            value = utvm_clamp(value, -last[5], last[5]);
        }
        cell[c] = (int16_t)value;
        int32_t product = gates[3 * cells + c] * utvm_tanh16(value, last[4]);
        hidden[c] =
            (int8_t)utvm_clamp(utvm_requantize(product, last[0], last[1]) + last[2], -128, 127);
    }
}

// Sequences of steps; element (t, b) of input and output is at
// t * step_stride + b * batch_stride.
static inline void utvm_lstm(const int8_t *input, const int8_t *input_weights,
                             const int8_t *hidden_weights, const int32_t *bias,
                             const int32_t *numbers, const int8_t *hidden_before,
                             const int16_t *cell_before, int8_t *output, int8_t *hidden,
                             int16_t *cell, int16_t *gates, int32_t *sums, int32_t batch,
                             int32_t steps, int32_t inputs, int32_t cells, int32_t step_stride,
                             int32_t batch_stride) {
    for (int32_t i = 0; i < batch * cells; i++) {
        hidden[i] = hidden_before[i];
        cell[i] = cell_before[i];
    }
    for (int32_t b = 0; b < batch; b++) {
        for (int32_t t = 0; t < steps; t++) {
            int32_t at = t * step_stride + b * batch_stride;
            utvm_lstm_step(input + at * inputs, input_weights, hidden_weights, bias, numbers,
                           inputs, cells, hidden + b * cells, cell + b * cells, gates, sums);
            for (int32_t c = 0; c < cells; c++) {
                output[at * cells + c] = hidden[b * cells + c];
            }
        }
    }
}
