// One step of one sequence. A gate has an even number of cells, and a cell two sums, by input and
// by hidden state; the first becomes the gate. Scaling is that of the gates, the integer bits of a
// cell less two, and as in utvm_lstm: multiplier, shift and zero point of the hidden state, the
// bits to shift a new cell by, and its largest magnitude or 0.
static inline void utvm_lstm_gates(const int32_t *scaling, const int32_t *table, int32_t cells,
                                   int8_t *hidden, int16_t *cell, int32_t *sums) {
    const int32_t gate = (cells + 1) & ~1;
    int32_t *forget = sums + 2 * gate;
    int32_t *made = forget + 2 * gate;
    int32_t *shown = made + 2 * gate;
    utvm_logistic_run(sums, gate, scaling, table);
    utvm_logistic_run(forget, gate, scaling + 10, table);
    utvm_tanh_run(made, gate, scaling + 20, table);
    utvm_logistic_run(shown, gate, scaling + 30, table);
    const int32_t *last = scaling + 40;
    const int32_t limit = last[5] > 0 ? last[5] : 32768;
    for (int32_t c = 0; c < cells; c++) {
        int32_t kept = utvm_rounded16(forget[2 * c] * cell[c], 15);
        int32_t added = utvm_rounded16(sums[2 * c] * made[2 * c], last[4]);
        int32_t value = utvm_int16(kept + added);
        value = utvm_clamp(value, -limit, limit);
        cell[c] = (int16_t)value;
        sums[2 * c] = value;
    }
    utvm_tanh_cells_run(sums, gate, last, table);
    for (int32_t c = 0; c < cells; c++) {
        int32_t value = utvm_requantize(shown[2 * c] * sums[2 * c], last[1], last[2]) + last[3];
        hidden[c] = (int8_t)utvm_clamp(value, -128, 127);
    }
}
