// A long short-term memory of int8 as utvm_lstm computes it. The rows of all
// gates are one product by input and one by hidden state.
//
// Sequences of steps; element (t, b) of input and output is at t * step_stride + b * batch_stride.
// The products by input of a block of steps follow each other, since their weights may stay in a
// cache. The bias is that by input, then by hidden state. A gate has a multiple of three cells, and
// a cell two sums, by input and by hidden state. Scaling is that of the gates, then of the cells.
static inline void utvm_lstm_packed(const int8_t *input, const int8_t *input_weights,
                                    const int8_t *hidden_weights, const int32_t *bias,
                                    const int32_t *scaling, const int32_t *table,
                                    const int8_t *hidden_before, const int16_t *cell_before,
                                    int8_t *output, int8_t *hidden, int16_t *cell, int16_t *wide,
                                    int32_t *sums, int32_t *kept, int8_t *shown, int32_t batch,
                                    int32_t steps, int32_t block, int32_t padded_inputs,
                                    int32_t padded_cells, int32_t inputs, int32_t cells,
                                    int32_t step_stride, int32_t batch_stride) {
    const int32_t gate = (cells + 2) / 3 * 3, rows = 4 * gate;
    for (int32_t b = 0; b < batch; b++, hidden += cells, cell += cells) {
        for (int32_t c = 0; c < gate; c++) {
            shown[c] = c < cells ? hidden_before[b * cells + c] : 0;
            kept[c] = c < cells ? cell_before[b * cells + c] : 0;
        }
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
                utvm_gate_sums(shown, wide, hidden_weights, bias + rows, made + 1, cells,
                               padded_cells, rows);
                utvm_logistic_run(made, gate, scaling, table);
                utvm_logistic_run(made + 2 * gate, gate, scaling + 10, table);
                utvm_tanh_run(made + 4 * gate, gate, scaling + 20, table);
                utvm_logistic_run(made + 6 * gate, gate, scaling + 30, table);
                utvm_cells_run(made, gate, scaling + 40, table, kept, shown);
                for (int32_t c = 0; c < cells; c++) {
                    to[c] = shown[c];
                }
            }
        }
        for (int32_t c = 0; c < cells; c++) {
            hidden[c] = shown[c];
            cell[c] = (int16_t)kept[c];
        }
    }
}
