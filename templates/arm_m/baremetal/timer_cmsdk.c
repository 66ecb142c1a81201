// Arm's CMSDK APB timer: 32 bit, counts down, interrupts at zero.
//
// It counts down from where the deadline of a task is, if there is one, so that
// no other interrupt disturbs what is measured.
//
// Every reading starts the count anew. On an emulator whose clock advances by
// instructions the time between two readings then depends on nothing but the
// instructions between them, not on where in a tick the first one fell.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define TIMER_CTRL REGISTER(BOARD_TIMER_BASE + 0x0u)
#define TIMER_VALUE REGISTER(BOARD_TIMER_BASE + 0x4u)
#define TIMER_RELOAD REGISTER(BOARD_TIMER_BASE + 0x8u)
#define TIMER_INTSTATUS REGISTER(BOARD_TIMER_BASE + 0xCu)

#define CTRL_ON 9u // enable, interrupt enable
#define RELOAD 0xFFFFFFFFu
#define PERIOD (1ull << 32) // counts from zero to zero: RELOAD + 1

static uint64_t total;
static volatile uint32_t wraps;
// What the count started from, less what was taken out since.
static uint64_t start = RELOAD;
// Counts from the last reading to the deadline.
static uint64_t left = UINT64_MAX;

void timer_start(void) {
    TIMER_CTRL = 0u;
    TIMER_RELOAD = RELOAD;
    TIMER_VALUE = RELOAD;
    TIMER_INTSTATUS = 1u;
    enable_interrupt(BOARD_TIMER_IRQ);
    TIMER_CTRL = CTRL_ON;
}

static void note_wrap(void) {
    TIMER_INTSTATUS = 1u;
    wraps = wraps + 1u;
    const uint64_t passed = wraps * PERIOD + start - RELOAD;
    if (left <= passed) {
        left = UINT64_MAX;
        guard_expire();
    } else if (left - passed < RELOAD) {
        // The rest is less than a period: leave out what is beyond it.
        const uint32_t skipped = RELOAD - (uint32_t)(left - passed);
        TIMER_VALUE = TIMER_VALUE - skipped;
        start -= skipped;
    }
}

void timer_isr(void) {
    note_wrap();
}

static void begin_count(void) {
    start = left < RELOAD ? left : RELOAD;
    TIMER_VALUE = (uint32_t)start;
}

// Takes what was counted so far over into the total.
static void take_count(void) {
    uint32_t value = TIMER_VALUE;
    if (TIMER_INTSTATUS & 1u) {
        // It wrapped with interrupts off, before or after the reading.
        note_wrap();
        value = TIMER_VALUE;
    }
    const uint64_t count = wraps * PERIOD + start - value;
    wraps = 0u;
    // QEMU's model shows ceil(elapsed) - 1 counts. With the one back, rounding down is exact where
    // a tick of ours is at least as long as a count.
    total += (count + 1u) * BOARD_TIMER_MULTIPLIER / BOARD_TIMER_DIVISOR;
    if (left != UINT64_MAX) {
        left = count < left ? left - count : 1u;
    }
}

uint64_t timer_ticks(void) {
    interrupts_off();
    take_count();
    const uint64_t ticks = total;
    begin_count();
    interrupts_on();
    return ticks;
}

void timer_set_deadline(uint32_t us) {
    take_count();
    left = us ? (uint64_t)us * BOARD_TIMER_CLOCK_HZ / 1000000u : UINT64_MAX;
    begin_count();
}

void timer_pause(void) {
    TIMER_CTRL = 0u;
}

void timer_resume(void) {
    TIMER_CTRL = CTRL_ON;
}
