// A long short-term memory of int8 as utvm_lstm computes it. The rows of all
// gates are one product by input and one by hidden state.
//
// Sequences of steps; element (t, b) of input and output is at t * step_stride + b * batch_stride.
// The products by input of a block of steps follow each other, since their weights may stay in a
// cache. The bias is that by input, then by hidden state.
static inline void utvm_lstm_packed(const int8_t *input, const int8_t *input_weights,
                                    const int8_t *hidden_weights, const int32_t *bias,
                                    const int32_t *scaling, const int32_t *table,
                                    const int8_t *hidden_before, const int16_t *cell_before,
                                    int8_t *output, int8_t *hidden, int16_t *cell, int16_t *wide,
                                    int32_t *sums, int32_t batch, int32_t steps, int32_t block,
                                    int32_t padded_inputs, int32_t padded_cells, int32_t inputs,
                                    int32_t cells, int32_t step_stride, int32_t batch_stride) {
    const int32_t rows = 4 * ((cells + 1) & ~1);
    for (int32_t i = 0; i < batch * cells; i++) {
        hidden[i] = hidden_before[i];
        cell[i] = cell_before[i];
    }
    for (int32_t b = 0; b < batch; b++, hidden += cells, cell += cells) {
        for (int32_t first = 0; first < steps; first += block) {
            int32_t end = first + block < steps ? first + block : steps;
            for (int32_t t = first; t < end; t++) {
                const int8_t *from = input + (t * step_stride + b * batch_stride) * inputs;
                utvm_gate_sums(from, wide, input_weights, bias, sums + (t - first) * 2 * rows,
                               inputs, padded_inputs, rows);
            }
            for (int32_t t = first; t < end; t++) {
                int8_t *to = output + (t * step_stride + b * batch_stride) * cells;
                int32_t *made = sums + (t - first) * 2 * rows;
                utvm_gate_sums(hidden, wide, hidden_weights, bias + rows, made + 1, cells,
                               padded_cells, rows);
                utvm_lstm_gates(scaling, table, cells, hidden, cell, made);
                for (int32_t c = 0; c < cells; c++) {
                    to[c] = hidden[c];
                }
            }
        }
    }
}
