// What plugin.py writes for a region, as words of 32 bits, and how engine.c and cpu.c read it.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef MX8_BLOB_H
#define MX8_BLOB_H

#include "driver.h"

// Bits of the word flags.
#define MX8_WITH_INTERRUPT 1u
#define MX8_WITH_FALLBACK 2u

// The first words. Then come the bytes of each region, the layers for the CPU, the commands and
// the data: weights and parameters. Region 0 is the data, region 1 the scratch between layers;
// then come inputs and outputs.
enum mx8_blob {
    MX8_FLAGS,
    MX8_TEST,
    MX8_COUNT, // of commands
    MX8_WRITTEN,
    MX8_INPUTS,
    MX8_OUTPUTS,
    MX8_LAYERS,
    MX8_BLOB_WORDS
};

// The words of a layer. Pairs have the columns in the low half, and the rows in the high half.
enum mx8_layer {
    MX8_FROM_REGION,
    MX8_FROM,
    MX8_TO_REGION,
    MX8_TO,
    MX8_IMAGE,      // a pair: of the input
    MX8_PLACES,     // a pair: of the output
    MX8_WINDOW,     // a pair: of the kernel
    MX8_STEPS,      // a pair: strides
    MX8_BEFORE,     // a pair: padding on the left and at the top
    MX8_DEPTHS,     // a pair: channels of the input, of the output
    MX8_AT_WEIGHTS, // in region 0
    MX8_AT_PARAMETERS,
    MX8_LIMITS, // as MX8_RANGE
    MX8_ZERO,   // the input's zero point, which the padding is
    MX8_LAYER_WORDS
};

// Compute a layer without the device.
void mx8_on_cpu(const uint32_t *layer, const struct mx8_work *work);

#endif
