// The interface of an imagined vendor's library: a dense layer for its accelerator.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef VENDOR_DENSE_H
#define VENDOR_DENSE_H

#include <stdint.h>

// The accelerator computes this many outputs at a time. Weights come in blocks of as many rows:
// first the first weight of each row of the block, then the second of each row, and so on.
#define VENDOR_ROWS 4

// What the library keeps while the accelerator is on.
#define VENDOR_STATE_BYTES 8

// Switch the accelerator on: once after each reset. Returns 0 for success.
int32_t vendor_init(void *state);

// output = clamp(round(scale * (weights * input + bias)) + zero_point), as LiteRT's reference
// kernel rounds. scale is (high * 2^26 + low) * 2^-(shift + 26), one for each output. Wants
// VENDOR_ROWS int32 values of scratch. Returns 0, or -3 if vendor_init() has not been called.
// (state is what that prepared.)
int32_t vendor_dense_s8(const int8_t *input, const int8_t *weights, const int32_t *bias,
                        const int32_t *high, const int32_t *low, const int32_t *shift,
                        int32_t batch, int32_t inputs, int32_t outputs, int32_t zero_point,
                        int32_t least, int32_t most, int32_t *scratch, const void *state,
                        int8_t *output);

#endif
