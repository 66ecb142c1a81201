// An engine that interprets graphs of float32: dense layers, convolutions and RELU. plugin.py
// writes them.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>
#include <string.h>

// The words of a graph: its nodes, then NODE_WORDS for each of them, then weights and biases.
enum { NODES, FIRST_NODE };

// The words of a node. Dense layers are convolutions whose image and kernel have one place.
enum {
    FROM,
    TO,
    HEIGHT,
    WIDTH,
    INPUTS, // channels
    ROWS,   // of the output
    COLUMNS,
    OUTPUTS,
    KERNEL_ROWS, // 0: no weights; the node limits its input
    KERNEL_COLUMNS,
    STRIDE_ROWS,
    STRIDE_COLUMNS,
    TOP, // padding
    LEFT,
    WEIGHTS, // where they are among the words
    BIAS,
    LOW, // limits, as floats
    HIGH,
    NODE_WORDS
};

// Where a tensor is: its memory, and which one, or in scratch after how many floats.
enum { IN_INPUTS, IN_OUTPUTS, IN_SCRATCH };

struct tiny_state {
    const int32_t *words;
};

uint32_t tiny_format(void) {
    return 1u;
}

int32_t tiny_init(const uint8_t *blob, uint32_t bytes, void *state) {
    struct tiny_state *ours = state;
    ours->words = (const int32_t *)(const void *)blob;
    return bytes < sizeof(int32_t);
}

void tiny_release(void *state) {
    ((struct tiny_state *)state)->words = (const int32_t *)0;
}

static float float_of(int32_t word) {
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static float limited(const int32_t *node, float value) {
    const float low = float_of(node[LOW]), high = float_of(node[HIGH]);
    return value < low ? low : value > high ? high : value;
}

// The weights' products with the window at an output position; nothing is beyond the image.
static float sum_of(const int32_t *node, const float *x, const float *weights, int32_t position) {
    const int32_t top = position / node[COLUMNS] * node[STRIDE_ROWS] - node[TOP];
    const int32_t left = position % node[COLUMNS] * node[STRIDE_COLUMNS] - node[LEFT];
    float sum = 0.0f;
    for (int32_t i = top; i < top + node[KERNEL_ROWS]; i++) {
        for (int32_t j = left; j < left + node[KERNEL_COLUMNS]; j++) {
            if (i >= 0 && i < node[HEIGHT] && j >= 0 && j < node[WIDTH]) {
                const float *from = x + (i * node[WIDTH] + j) * node[INPUTS];
                for (int32_t c = 0; c < node[INPUTS]; c++) {
                    sum += from[c] * weights[c];
                }
            }
            weights += node[INPUTS];
        }
    }
    return sum;
}

static void run_node(const int32_t *words, const int32_t *node, const float *x, float *y) {
    const int32_t places = node[ROWS] * node[COLUMNS];
    const int32_t size = node[KERNEL_ROWS] * node[KERNEL_COLUMNS] * node[INPUTS];
    const float *bias = (const float *)(const void *)(words + node[BIAS]);
    const float *weights = (const float *)(const void *)(words + node[WEIGHTS]);
    for (int32_t i = 0; i < places * node[OUTPUTS]; i++) {
        const int32_t channel = i % node[OUTPUTS];
        float value = x[i];
        if (size != 0) {
            value = sum_of(node, x, weights + channel * size, i / node[OUTPUTS]) + bias[channel];
        }
        y[i] = limited(node, value);
    }
}

int32_t tiny_run(void *state, const void *const *inputs, void *const *outputs, void *scratch) {
    const int32_t *words = ((struct tiny_state *)state)->words;
    if (words == (const int32_t *)0) {
        return -1; // not initialized
    }
    for (int32_t i = 0; i < words[NODES]; i++) {
        const int32_t *node = words + FIRST_NODE + i * NODE_WORDS;
        const int32_t from = node[FROM] & 0xFFFFFF, to = node[TO] & 0xFFFFFF;
        const int32_t source = node[FROM] >> 24;
        const float *x = source == IN_SCRATCH  ? (const float *)scratch + from
                         : source == IN_INPUTS ? (const float *)inputs[from]
                                               : (const float *)outputs[from];
        float *y = node[TO] >> 24 == IN_SCRATCH ? (float *)scratch + to : (float *)outputs[to];
        run_node(words, node, x, y);
    }
    return 0;
}
