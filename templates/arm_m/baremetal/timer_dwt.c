// The core's own cycle counter. It is 32 bit and tells nobody when it wraps
// (20 s at 216 MHz), so SysTick looks at it more often than that.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define SYSTICK_PERIOD 0x01000000u // the longest: every 78 ms at 216 MHz

static uint32_t last;
static uint64_t total;
// In counts since start; not before the first that is set.
static uint64_t deadline = UINT64_MAX;

void timer_start(void) {
    DEBUG_DEMCR |= 1u << 24; // trace unit on
    DWT_LAR = 0xC5ACCE55u;   // a Cortex-M7 locks the unit against software
    DWT_CYCCNT = 0u;
    DWT_CTRL |= 1u;
    SYSTICK_LOAD = SYSTICK_PERIOD - 1u;
    SYSTICK_VALUE = 0u;
    SYSTICK_CTRL = 7u; // core clock, interrupt, enable
}

static uint64_t advance(void) {
    const uint32_t now = DWT_CYCCNT;
    total += now - last;
    last = now;
    return total;
}

void timer_isr(void) {
    if (advance() >= deadline) {
        deadline = UINT64_MAX;
        guard_expire();
    }
}

// As late as SysTick comes next: that is soon enough for what does not end.
void timer_set_deadline(uint32_t us) {
    deadline = us ? advance() + (uint64_t)us * BOARD_CPU_HZ / 1000000u : UINT64_MAX;
}

uint64_t timer_ticks(void) {
    interrupts_off();
    const uint64_t ticks = advance();
    interrupts_on();
    return ticks * BOARD_TIMER_MULTIPLIER / BOARD_TIMER_DIVISOR;
}

void timer_pause(void) {
}

void timer_resume(void) {
}
