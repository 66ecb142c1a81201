// Ticks are modelled cycles where the emulator has a cycle model, and what the
// timer counts where it has none: the image says to its host which.
//
// The model answers a signal by writing its counters to a block in this image.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "model_signals.h"
#include "port.h"
#include "utvm.h"

// In memory that code runs from: that is how the model finds it.
__attribute__((section(".rodata.utvm_counters"), aligned(8)))
const uint64_t utvm_counters[BOARD_COUNTER_WORDS] = {0};

// The model changes what to the compiler is constant.
static uint64_t counter(size_t index) {
    return ((const volatile uint64_t *)utvm_counters)[index];
}

static uint64_t modelled_cycles(void *context) {
    (void)context;
    MODEL_COUNTS();
    return counter(BOARD_COUNTER_CYCLES);
}

// The host calls it as the first task of a list: what is counted from there
// on does not depend on how the request came in.
void utvm_forget_history(void) {
    MODEL_FORGETS();
}

const struct utvm_config *ticks_choose(const struct utvm_config *config) {
    static struct utvm_config chosen;
    (void)modelled_cycles(NULL);
    if (!counter(BOARD_COUNTER_INSTRUCTIONS)) {
        return config;
    }
    chosen = *config;
    chosen.ticks = modelled_cycles;
    chosen.ticks_per_second = BOARD_CPU_HZ;
    chosen.tick_unit = UTVM_TICK_UNIT_CYCLES;
    return &chosen;
}
