// What a long short-term memory may have beside its four gates, bit for bit as
// LiteRT's reference kernel: only three of them (the input gate is then what
// forgetting leaves), peepholes, layer normalization, a projection.

struct utvm_lstm_full {
    const int8_t *input_weights;
    const int8_t *hidden_weights;
    const int32_t *bias; // of the gates by input, then by hidden state
    const int16_t *peephole;
    const int16_t *norm;
    const int32_t *norm_bias;
    const int8_t *projection;
    const int32_t *projection_bias;
    // For each of four gates: multipliers and shifts by input, hidden state and
    // cell, and of the norm, and the variance where there is none; then those of
    // the hidden state, its zero point, the bits to shift a new cell by, the
    // integer bits of a cell, its largest magnitude or 0; multiplier and shift of
    // the projection, the output's zero point, its largest magnitude or 0; the
    // first gate, the first gate with a peephole, whether there are peepholes,
    // norms, a projection.
    const int32_t *numbers;
    int32_t inputs;
    int32_t outputs;
    int32_t cells;
};

static inline int32_t utvm_lstm_dot(const int8_t *left, const int8_t *right, int32_t count) {
    int32_t total = 0;
    utvm_dot_rows(left, right, count, 1, &total);
    return total;
}

// The gate's values at a mean of 0 and a variance of 1, weighted.
static inline void utvm_lstm_normalize(const struct utvm_lstm_full *l, const int32_t *numbers,
                                       int32_t row, int16_t *gate) {
    int32_t sum = 0;
    int64_t squares = 0;
    for (int32_t c = 0; c < l->cells; c++) {
        sum += gate[c];
        squares += gate[c] * gate[c];
    }
    int32_t mean = sum / l->cells * 1024 + sum % l->cells * 1024 / l->cells;
    int64_t spread = squares * ((1 << 20) / l->cells) - (int64_t)mean * mean;
    int32_t variance = (int32_t)(spread / (1 << 20));
    variance = variance < 1 ? numbers[2] : variance;
    int32_t inverse = utvm_inverse_root(variance);
    int32_t shift = utvm_inverse_root_shift(variance);
    for (int32_t c = 0; c < l->cells; c++) {
        int32_t value = utvm_requantize(1024 * gate[c] - mean, inverse, shift);
        uint32_t product = (uint32_t)value * (uint32_t)(int32_t)l->norm[row + c];
        value = (int32_t)(product + (uint32_t)l->norm_bias[row + c]);
        value = (int32_t)(((int64_t)value + (value > 0 ? 512 : -512)) / 1024);
        gate[c] = (int16_t)utvm_int16(utvm_requantize(value, numbers[0], numbers[1] + 12));
    }
}

static inline void utvm_lstm_gate(const struct utvm_lstm_full *l, int32_t gate, const int8_t *input,
                                  const int8_t *hidden, const int16_t *cell, int16_t *values) {
    const int32_t *numbers = l->numbers + 9 * gate;
    const int32_t *last = l->numbers + 36;
    int32_t row = (gate - last[10]) * l->cells;
    int32_t rows = (4 - last[10]) * l->cells;
    // Input, forgetting and output have peepholes; the cell has none.
    int32_t peephole = ((gate == 3 ? 2 : gate) - last[11]) * l->cells;
    for (int32_t c = 0; c < l->cells; c++) {
        int32_t total = utvm_lstm_dot(input, l->input_weights + (row + c) * l->inputs, l->inputs);
        total = utvm_add(total, l->bias[row + c]);
        int32_t value = utvm_int16(utvm_requantize(total, numbers[0], numbers[1]));
        total = utvm_lstm_dot(hidden, l->hidden_weights + (row + c) * l->outputs, l->outputs);
        total = utvm_add(total, l->bias[rows + row + c]);
        value = utvm_int16(utvm_requantize(total, numbers[2], numbers[3]) + value);
        if (last[12] && gate != 2) {
            total = l->peephole[peephole + c] * cell[c];
            value = utvm_int16(utvm_requantize(total, numbers[4], numbers[5]) + value);
        }
        values[c] = (int16_t)value;
    }
    if (last[13]) {
        utvm_lstm_normalize(l, numbers + 6, row, values);
    }
    for (int32_t c = 0; c < l->cells; c++) {
        values[c] = (int16_t)(gate == 2 ? utvm_tanh16(values[c], 3) : utvm_logistic16(values[c]));
    }
}

static inline void utvm_lstm_full_step(const struct utvm_lstm_full *l, const int8_t *input,
                                       int8_t *hidden, int16_t *cell, int16_t *gates, int8_t *row) {
    const int32_t *last = l->numbers + 36;
    int16_t *forget = gates + l->cells, *update = gates + 2 * l->cells, *out = gates + 3 * l->cells;
    // GCC warns of a gate that may have no value if one loop begins at last[10].
    if (last[10] == 0) {
        utvm_lstm_gate(l, 0, input, hidden, cell, gates);
    }
    utvm_lstm_gate(l, 1, input, hidden, cell, forget);
    utvm_lstm_gate(l, 2, input, hidden, cell, update);
    for (int32_t c = 0; c < l->cells; c++) {
        int32_t kept = utvm_rounded_shift(forget[c] * cell[c], 15);
        int32_t share = last[10] ? 32767 - forget[c] : gates[c];
        int32_t added = utvm_divided(share * update[c], last[3]);
        int32_t value = utvm_int16((int16_t)kept + (int16_t)added);
        if (last[5] > 0) {
            value = utvm_clamp(value, -last[5], last[5]);
        }
        cell[c] = (int16_t)value;
    }
    utvm_lstm_gate(l, 3, input, hidden, cell, out);
    int8_t *made = last[14] ? row : hidden;
    for (int32_t c = 0; c < l->cells; c++) {
        int32_t product = out[c] * utvm_tanh16(cell[c], last[4]);
        product = utvm_requantize(product, last[0], last[1]) + last[2];
        made[c] = (int8_t)utvm_clamp(product, -128, 127);
    }
    if (!last[14]) {
        return;
    }
    for (int32_t o = 0; o < l->outputs; o++) {
        int32_t total = utvm_lstm_dot(row, l->projection + o * l->cells, l->cells);
        total = utvm_requantize(utvm_add(total, l->projection_bias[o]), last[6], last[7]);
        total = utvm_clamp(total + last[8], -128, 127);
        hidden[o] = (int8_t)(last[9] > 0 ? utvm_clamp(total, -last[9], last[9]) : total);
    }
}

// Sequences of steps; element (t, b) of input and output is at
// t * step_stride + b * batch_stride.
static inline void
utvm_lstm_full(const int8_t *input, const int8_t *input_weights, const int8_t *hidden_weights,
               const int32_t *bias, const int16_t *peephole, const int16_t *norm,
               const int32_t *norm_bias, const int8_t *projection, const int32_t *projection_bias,
               const int32_t *numbers, const int8_t *hidden_before, const int16_t *cell_before,
               int8_t *output, int8_t *hidden, int16_t *cell, int16_t *gates, int8_t *row,
               int32_t batch, int32_t steps, int32_t inputs, int32_t outputs, int32_t cells,
               int32_t step_stride, int32_t batch_stride) {
    const struct utvm_lstm_full l = {
        input_weights, hidden_weights,  bias,    peephole, norm,    norm_bias,
        projection,    projection_bias, numbers, inputs,   outputs, cells,
    };
    for (int32_t i = 0; i < batch * outputs; i++) {
        hidden[i] = hidden_before[i];
    }
    for (int32_t i = 0; i < batch * cells; i++) {
        cell[i] = cell_before[i];
    }
    for (int32_t b = 0; b < batch; b++) {
        for (int32_t t = 0; t < steps; t++) {
            int32_t at = t * step_stride + b * batch_stride;
            utvm_lstm_full_step(&l, input + at * inputs, hidden + b * outputs, cell + b * cells,
                                gates, row);
            for (int32_t o = 0; o < outputs; o++) {
                output[at * outputs + o] = hidden[b * outputs + o];
            }
        }
    }
}
