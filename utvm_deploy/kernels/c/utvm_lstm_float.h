// A long short-term memory of float32: coupled gates, peepholes, layer
// normalization and a projection are optional. Sums are in the order of LiteRT's.

struct utvm_lstm_float {
    const float *input_weights;
    const float *hidden_weights;
    const float *bias;
    const float *peephole;
    const float *norm;
    const float *projection;
    const float *projection_bias;
    const float *clips; // largest magnitudes of a cell and of a projected output, or 0
    int32_t inputs;
    int32_t outputs;
    int32_t cells;
    int32_t first_gate; // 1 if the input gate is what the forget gate leaves
    int32_t has_peepholes;
    int32_t has_norms;
    int32_t has_projection;
};

UTVM_EXACT_FLOAT static inline float utvm_lstm_float_dot(const float *left, const float *right,
                                                         int32_t count) {
    float total = 0.0f;
    for (int32_t i = 0; i < count; i++) {
        total += left[i] * right[i];
    }
    return total;
}

// A limit of 0 is none.
UTVM_EXACT_FLOAT static inline float utvm_lstm_float_clip(float value, float limit) {
    if (limit > 0.0f) {
        value = value < -limit ? -limit : value;
        value = limit < value ? limit : value;
    }
    return value;
}

UTVM_EXACT_FLOAT static inline void utvm_lstm_float_normalize(const struct utvm_lstm_float *l,
                                                              int32_t row, float *values) {
    float sum = 0.0f, squares = 0.0f;
    for (int32_t c = 0; c < l->cells; c++) {
        sum += values[c];
    }
    const float mean = sum / (float)l->cells;
    for (int32_t c = 0; c < l->cells; c++) {
        const float difference = values[c] - mean;
        squares += difference * difference;
    }
    const float inverse = 1.0f / utvm_sqrtf(squares / (float)l->cells + 1e-8f);
    for (int32_t c = 0; c < l->cells; c++) {
        values[c] = (values[c] - mean) * inverse * l->norm[row + c] + l->bias[row + c];
    }
}

// Gates are those of input, forgetting, cell, output.
UTVM_EXACT_FLOAT static inline void utvm_lstm_float_gate(const struct utvm_lstm_float *l,
                                                         int32_t gate, const float *input,
                                                         const float *hidden, const float *cell,
                                                         float *values) {
    const int32_t row = (gate - l->first_gate) * l->cells;
    // Input, forgetting and output have peepholes; the cell has none.
    const float *peephole = l->peephole + ((gate == 3 ? 2 : gate) - l->first_gate) * l->cells;
    for (int32_t c = 0; c < l->cells; c++) {
        float total = l->has_norms ? 0.0f : l->bias[row + c];
        total += utvm_lstm_float_dot(l->input_weights + (row + c) * l->inputs, input, l->inputs);
        total +=
            utvm_lstm_float_dot(l->hidden_weights + (row + c) * l->outputs, hidden, l->outputs);
        if (l->has_peepholes && gate != 2) {
            total += peephole[c] * cell[c];
        }
        values[c] = total;
    }
    if (l->has_norms) {
        utvm_lstm_float_normalize(l, row, values);
    }
    for (int32_t c = 0; c < l->cells; c++) {
        values[c] = gate == 2 ? utvm_tanhf(values[c]) : utvm_sigmoidf(values[c]);
    }
}

UTVM_EXACT_FLOAT static inline void utvm_lstm_float_step(const struct utvm_lstm_float *l,
                                                         const float *input, float *hidden,
                                                         float *cell, float *gates) {
    float *forget = gates + l->cells, *update = gates + 2 * l->cells, *out = gates + 3 * l->cells;
    for (int32_t gate = l->first_gate; gate < 3; gate++) {
        utvm_lstm_float_gate(l, gate, input, hidden, cell, gates + gate * l->cells);
    }
    for (int32_t c = 0; c < l->cells; c++) {
        const float share = l->first_gate ? 1.0f - forget[c] : gates[c];
        const float kept = forget[c] * cell[c];
        cell[c] = utvm_lstm_float_clip(kept + share * update[c], l->clips[0]);
    }
    utvm_lstm_float_gate(l, 3, input, hidden, cell, out);
    for (int32_t c = 0; c < l->cells; c++) {
        out[c] *= utvm_tanhf(cell[c]);
    }
    for (int32_t o = 0; o < l->outputs; o++) {
        float value = out[o];
        if (l->has_projection) {
            value = l->projection_bias[o] +
                    utvm_lstm_float_dot(l->projection + o * l->cells, out, l->cells);
            value = utvm_lstm_float_clip(value, l->clips[1]);
        }
        hidden[o] = value;
    }
}

// Sequences of steps; element (t, b) of input and output is at
// t * step_stride + b * batch_stride.
UTVM_EXACT_FLOAT static inline void utvm_lstm_float(
    const float *input, const float *input_weights, const float *hidden_weights, const float *bias,
    const float *peephole, const float *norm, const float *projection, const float *projection_bias,
    const float *clips, const float *hidden_before, const float *cell_before, float *output,
    float *hidden, float *cell, float *gates, int32_t batch, int32_t steps, int32_t inputs,
    int32_t outputs, int32_t cells, int32_t step_stride, int32_t batch_stride, int32_t first_gate,
    int32_t has_peepholes, int32_t has_norms, int32_t has_projection) {
    const struct utvm_lstm_float l = {
        input_weights, hidden_weights,  bias,          peephole,  norm,
        projection,    projection_bias, clips,         inputs,    outputs,
        cells,         first_gate,      has_peepholes, has_norms, has_projection,
    };
    for (int32_t i = 0; i < batch * outputs; i++) {
        hidden[i] = hidden_before[i];
    }
    for (int32_t i = 0; i < batch * cells; i++) {
        cell[i] = cell_before[i];
    }
    for (int32_t b = 0; b < batch; b++) {
        for (int32_t t = 0; t < steps; t++) {
            const int32_t at = t * step_stride + b * batch_stride;
            utvm_lstm_float_step(&l, input + at * inputs, hidden + b * outputs, cell + b * cells,
                                 gates);
            for (int32_t o = 0; o < outputs; o++) {
                output[at * outputs + o] = hidden[b * outputs + o];
            }
        }
    }
}
