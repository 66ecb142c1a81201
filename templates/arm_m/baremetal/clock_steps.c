// Registers that the board's file has written at start-up, in its order: clocks,
// resets, pins. A step writes the bits of its mask, or waits until they have a
// value.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

struct step {
    uint32_t address;
    uint32_t mask;
    uint32_t value;
    uint32_t waits;
};

static const struct step steps[] = {BOARD_CLOCK_STEPS};

// Each read takes three cycles or more, so this is 7 ms or more at 400 MHz.
// Oscillators take a few milliseconds.
#define MAX_READS 1000000u

// Where a debugger finds a core whose clock never came.
__attribute__((noinline)) static void clock_did_not_start(void) {
    for (;;) {
        barrier();
    }
}

static void wait_for(const struct step *step) {
    for (uint32_t i = 0u; i < MAX_READS; ++i) {
        if ((REGISTER(step->address) & step->mask) == step->value) {
            return;
        }
    }
    clock_did_not_start();
}

void clock_start(void) {
    for (uint32_t i = 0u; i < sizeof steps / sizeof steps[0]; ++i) {
        const struct step *step = &steps[i];
        if (step->waits) {
            wait_for(step);
        } else if (step->mask == 0xFFFFFFFFu) {
            REGISTER(step->address) = step->value;
        } else {
            REGISTER(step->address) = (REGISTER(step->address) & ~step->mask) | step->value;
        }
    }
}
