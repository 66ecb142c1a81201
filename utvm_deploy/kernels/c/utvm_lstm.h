// A long short-term memory of int8 with a cell state of int16: bit for bit that
// of LiteRT's reference kernel.

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
