// The 64-bit system counter of Arm's SSE-300 subsystem.
//
// The difference of two readings is rounded to the nearest tick: where a tick
// of ours is more than two counts, that is exact wherever the first one fell.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define COUNTER_CONTROL REGISTER(BOARD_TIMER_CONTROL_BASE + 0x0u)
#define COUNT_LOW REGISTER(BOARD_TIMER_BASE + 0x0u)
#define COUNT_HIGH REGISTER(BOARD_TIMER_BASE + 0x4u)
#define COMPARE_LOW REGISTER(BOARD_TIMER_BASE + 0x20u)
#define COMPARE_HIGH REGISTER(BOARD_TIMER_BASE + 0x24u)
#define COMPARE_CONTROL REGISTER(BOARD_TIMER_BASE + 0x2Cu)

static uint64_t last;
static uint64_t total;

static uint64_t count(void) {
    uint32_t high;
    uint32_t low;
    do {
        high = COUNT_HIGH;
        low = COUNT_LOW;
    } while (high != COUNT_HIGH);
    return (uint64_t)high << 32 | low;
}

void timer_start(void) {
    COUNTER_CONTROL |= 1u;
    last = count();
    enable_interrupt(BOARD_TIMER_IRQ);
}

uint64_t timer_ticks(void) {
    const uint64_t now = count();
    total +=
        ((now - last) * BOARD_TIMER_MULTIPLIER + BOARD_TIMER_DIVISOR / 2u) / BOARD_TIMER_DIVISOR;
    last = now;
    return total;
}

void timer_pause(void) {
}

void timer_resume(void) {
}

void timer_isr(void) {
    COMPARE_CONTROL = 0u;
    guard_expire();
}

void timer_set_deadline(uint32_t us) {
    COMPARE_CONTROL = 0u;
    if (us) {
        // A multiple of 1024 counts is a whole number of nanoseconds at any usual
        // rate. QEMU rounds others down, looks before they are reached, and if the
        // core sleeps looks again at the same instant, for ever.
        const uint64_t counts = (uint64_t)us * BOARD_TIMER_CLOCK_HZ / 1000000u;
        const uint64_t end = (count() + counts) / 1024u * 1024u + 1024u;
        COMPARE_LOW = (uint32_t)end;
        COMPARE_HIGH = (uint32_t)(end >> 32);
        COMPARE_CONTROL = 1u;
    }
}
