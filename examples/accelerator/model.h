// A model of MX8: what the silicon would be.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef MX8_MODEL_H
#define MX8_MODEL_H

#include "mx8.h"

// A command may wait for one of as many before it.
#define MX8_HISTORY 64u

struct mx8_model {
    struct mx8_registers registers;
    uint32_t is_raised;  // the interrupt's line
    uint32_t free_at[3]; // the cycle in which each unit has done its commands
    uint32_t done_at[MX8_HISTORY];
    uint8_t local[MX8_LOCAL_BYTES];
};

// Let the device execute a command, if there is one.
void mx8_model_step(struct mx8_model *model);

#endif
