// One layer of CMSIS-NN between the cycle model's markers, once for every placement of its data;
// layer.h, which placements.py writes, holds the layer and the placements.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>

#include "arm_nnfunctions.h"

extern uint32_t ld_stack_top[];
extern char ld_ram[];
extern char ld_weights[];

// Offsets from the begin of cached RAM, and of cached memory for weights.
struct placement {
    uint32_t input, output, weights, bias, multiplier, shift;
};

__attribute__((section(".scratch"), aligned(32))) static char scratch[16384];

#include "layer.h"

static const struct placement placements[] = {PLACEMENTS};

static void semihost(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static uint32_t random_byte(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 24;
}

__attribute__((noinline)) static void run(void) {
    for (unsigned n = 0; n < sizeof placements / sizeof *placements; ++n) {
        const struct placement *at = &placements[n];
        int8_t *input = (int8_t *)ld_ram + at->input;
        int8_t *weights = (int8_t *)ld_weights + at->weights;
        int32_t *bias = (int32_t *)(void *)(ld_weights + at->bias);
        int32_t *multiplier = (int32_t *)(void *)(ld_weights + at->multiplier);
        int32_t *shift = (int32_t *)(void *)(ld_weights + at->shift);
        uint32_t state = 1;
        for (int i = 0; i < INPUT_BYTES; ++i) {
            input[i] = (int8_t)random_byte(&state);
        }
        for (int i = 0; i < WEIGHTS_BYTES; ++i) {
            weights[i] = (int8_t)random_byte(&state);
        }
        for (int i = 0; i < CHANNELS; ++i) {
            bias[i] = (int32_t)(random_byte(&state) * 16) - 2048;
            multiplier[i] = (int32_t)(0x40000000u + (random_byte(&state) << 20));
            shift[i] = -7;
        }
        __asm__ volatile("dbg #12\n isb\n dbg #13\n isb" ::: "memory");
        arm_cmsis_nn_status status =
            layer(input, (int8_t *)ld_ram + at->output, weights, bias, multiplier, shift);
        __asm__ volatile("isb\n dbg #13\n isb" ::: "memory");
        if (status != ARM_CMSIS_NN_SUCCESS) {
            semihost(0x04, "refused\n");
        }
    }
}

void reset_handler(void);
void reset_handler(void) {
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; // FPU on, which run() may need at once
    __asm__ volatile("dsb\n isb");
    run();
    semihost(0x18, (const void *)0x20026);
    for (;;) {
    }
}

static void fault_handler(void) {
    semihost(0x04, "fault\n");
    semihost(0x18, (const void *)0x20023);
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    ld_stack_top,          (void *)reset_handler, (void *)fault_handler, (void *)fault_handler,
    (void *)fault_handler, (void *)fault_handler, (void *)fault_handler,
};
