// An imagined vendor's library. A real one would write to the registers of its accelerator.
//
// SPDX-License-Identifier: Apache-2.0

#include "vendor_dense.h"

#define ON 0x5EED0001u

struct state {
    uint32_t on; // ON after vendor_init()
    uint32_t unused;
};

int32_t vendor_init(void *state) {
    struct state *ours = state;
    ours->on = ON;
    ours->unused = 0u;
    return 0;
}

// Half away from zero; results beyond +-1024 are far outside int8.
static int32_t scaled(int32_t value, int32_t high, int32_t low, int32_t shift) {
    uint64_t magnitude = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    uint64_t product = magnitude * (uint32_t)high + ((magnitude * (uint32_t)low) >> 26);
    uint64_t rounded = (product + ((uint64_t)1 << (shift - 1))) >> shift;
    int32_t result = rounded > 1024u ? 1024 : (int32_t)rounded;
    return value < 0 ? -result : result;
}

int32_t vendor_dense_s8(const int8_t *input, const int8_t *weights, const int32_t *bias,
                        const int32_t *high, const int32_t *low, const int32_t *shift,
                        int32_t batch, int32_t inputs, int32_t outputs, int32_t zero_point,
                        int32_t least, int32_t most, int32_t *scratch, const void *state,
                        int8_t *output) {
    if (((const struct state *)state)->on != ON) {
        return -3;
    }
    for (int32_t row = 0; row < batch; row++) {
        const int8_t *block = weights;
        for (int32_t first = 0; first < outputs; first += VENDOR_ROWS) {
            for (int32_t lane = 0; lane < VENDOR_ROWS; lane++) {
                scratch[lane] = first + lane < outputs ? bias[first + lane] : 0;
            }
            for (int32_t i = 0; i < inputs; i++) {
                for (int32_t lane = 0; lane < VENDOR_ROWS; lane++) {
                    scratch[lane] += input[row * inputs + i] * *block++;
                }
            }
            for (int32_t lane = 0; lane < VENDOR_ROWS && first + lane < outputs; lane++) {
                int32_t at = first + lane;
                int32_t value = scaled(scratch[lane], high[at], low[at], shift[at]) + zero_point;
                value = value < least ? least : value > most ? most : value;
                output[row * outputs + at] = (int8_t)value;
            }
        }
    }
    return 0;
}
