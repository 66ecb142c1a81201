// A long short-term memory of int16 by int8 weights, bit for bit that of TFLite
// Micro (lstm_eval.h).

// Adds to every gate the products of a vector with its row of packed weights.
// Scales are the multiplier and the shift of each of the four gates, four
// numbers apart. Short sums fit 32 bits (int16x8.is_short).
static inline void utvm_lstm_wide_gates(const int16_t *vector, const int8_t *weights,
                                        const int64_t *bias, const int32_t *scales,
                                        int32_t is_short, int32_t count, int32_t cells,
                                        int16_t *gates, int16_t *row, int64_t *totals) {
    int32_t pitch = (count + 3) & ~3;
    if (pitch != count) {
        for (int32_t i = 0; i < pitch; i++) {
            row[i] = i < count ? vector[i] : 0;
        }
        vector = row;
    }
    utvm_wide_rows(vector, weights, pitch, 4 * cells, totals);
    for (int32_t gate = 0; gate < 4; gate++, scales += 4, gates += cells, totals += cells) {
        const int32_t multiplier = scales[0], shift = scales[1], bits = -1 - shift;
        for (int32_t c = 0; c < cells; c++) {
            int64_t total = totals[c] + (bias ? bias[gate * cells + c] : 0);
            int32_t value;
            if (is_short) {
                int64_t product = (int64_t)(int32_t)total * (multiplier << 16);
                value = ((int32_t)(product >> 32) + (1 << (bits - 1))) >> bits;
            } else {
                value = utvm_requantize_wide(total, multiplier, shift);
            }
            gates[c] = (int16_t)utvm_int16(gates[c] + utvm_int16(value));
        }
    }
}

// Numbers are, for each gate, multipliers and shifts by input and by hidden
// state; then multipliers and shifts of what a cell keeps, of what it adds and
// of the hidden state, multiplier and shift of its TANH, its largest magnitude
// or 0, and whether sums are short. Element (t, b) of input and output is at
// t * step_stride + b * batch_stride.
static inline void utvm_lstm_wide(const int16_t *input, const int8_t *input_weights,
                                  const int8_t *hidden_weights, const int64_t *bias,
                                  const int32_t *logistic, const int32_t *tanh,
                                  const int32_t *numbers, const int16_t *hidden_before,
                                  const int16_t *cell_before, int16_t *output, int16_t *hidden,
                                  int16_t *cell, int16_t *gates, int16_t *row, int64_t *totals,
                                  int32_t batch, int32_t steps, int32_t inputs, int32_t cells,
                                  int32_t step_stride, int32_t batch_stride) {
    const int32_t *last = numbers + 16;
    for (int32_t i = 0; i < batch * cells; i++) {
        hidden[i] = hidden_before[i];
        cell[i] = cell_before[i];
    }
    for (int32_t b = 0; b < batch; b++, hidden += cells, cell += cells) {
        for (int32_t t = 0; t < steps; t++) {
            int32_t at = t * step_stride + b * batch_stride;
            for (int32_t i = 0; i < 4 * cells; i++) {
                gates[i] = 0;
            }
            utvm_lstm_wide_gates(input + at * inputs, input_weights, bias, numbers, last[9], inputs,
                                 cells, gates, row, totals);
            utvm_lstm_wide_gates(hidden, hidden_weights, 0, numbers + 2, last[9], cells, cells,
                                 gates, row, totals);
            for (int32_t c = 0; c < cells; c++) {
                int32_t enter = utvm_logistic_line16(logistic, 3 * gates[c]);
                int32_t forget = utvm_logistic_line16(logistic, 3 * gates[cells + c]);
                int32_t update = utvm_tanh_line16(tanh, 3 * gates[2 * cells + c]);
                int32_t leave = utvm_logistic_line16(logistic, 3 * gates[3 * cells + c]);
                int32_t kept = utvm_int16(utvm_requantize(forget * cell[c], last[0], last[1]));
                int32_t added = utvm_int16(utvm_requantize(enter * update, last[2], last[3]));
                int32_t value = utvm_int16(kept + added);
                if (last[8] > 0) {
                    value = utvm_clamp(value, -last[8], last[8]);
                }
                cell[c] = (int16_t)value;
                value = (value * last[6] + (1 << last[7] >> 1)) >> last[7];
                value = leave * utvm_tanh_line16(tanh, value);
                hidden[c] = (int16_t)utvm_int16(utvm_requantize(value, last[4], last[5]));
                output[at * cells + c] = hidden[c];
            }
        }
    }
}
