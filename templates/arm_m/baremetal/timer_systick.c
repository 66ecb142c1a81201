// SysTick, for cores without a cycle counter: it counts the core's clock down in
// 24 bits, and interrupts at each wrap (134 ms at 125 MHz).
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define PERIOD 0x01000000u
#define ICSR_SYSTICK_PENDING (1u << 26)

// Cycles of whole periods.
static uint64_t wrapped;
static uint64_t deadline = UINT64_MAX;

void timer_start(void) {
    SYSTICK_LOAD = PERIOD - 1u;
    SYSTICK_VALUE = 0u;
    SYSTICK_CTRL = 7u; // core clock, interrupt, enable
}

// Interrupts are off. A wrap whose interrupt waits is not in `wrapped` yet.
static uint64_t cycles(void) {
    uint32_t left = SYSTICK_VALUE;
    uint64_t whole = wrapped;
    if (SCB_ICSR & ICSR_SYSTICK_PENDING) {
        left = SYSTICK_VALUE; // the first look may have been before the wrap
        whole += PERIOD;
    }
    // It interrupts as it reaches 0, and goes on from PERIOD - 1.
    return whole + ((PERIOD - left) & (PERIOD - 1u));
}

void timer_isr(void) {
    wrapped += PERIOD;
    if (wrapped >= deadline) {
        deadline = UINT64_MAX;
        guard_expire();
    }
}

// As late as the next wrap: that is soon enough for what does not end.
void timer_set_deadline(uint32_t us) {
    deadline = us ? cycles() + (uint64_t)us * BOARD_CPU_HZ / 1000000u : UINT64_MAX;
}

uint64_t timer_ticks(void) {
    interrupts_off();
    const uint64_t now = cycles();
    interrupts_on();
    return now * BOARD_TIMER_MULTIPLIER / BOARD_TIMER_DIVISOR;
}

void timer_pause(void) {
}

void timer_resume(void) {
}
