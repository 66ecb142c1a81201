// Nordic's 32-bit TIMER (nRF51, nRF52), which counts up. Only TIMER0 has 32 bits on an nRF51.
//
// It interrupts at the deadline of a task, and at the latest after half a period, so that no wrap
// is missed.
//
// The difference of two readings is rounded to the nearest tick: where a tick
// of ours is more than two counts, that is exact wherever the first one fell.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define TIMER_START REGISTER(BOARD_TIMER_BASE + 0x000u)
#define TIMER_STOP REGISTER(BOARD_TIMER_BASE + 0x004u)
#define TIMER_CLEAR REGISTER(BOARD_TIMER_BASE + 0x00Cu)
#define TIMER_CAPTURE1 REGISTER(BOARD_TIMER_BASE + 0x044u)
#define TIMER_COMPARED0 REGISTER(BOARD_TIMER_BASE + 0x140u)
#define TIMER_INTENSET REGISTER(BOARD_TIMER_BASE + 0x304u)
#define TIMER_MODE REGISTER(BOARD_TIMER_BASE + 0x504u)
#define TIMER_BITMODE REGISTER(BOARD_TIMER_BASE + 0x508u)
#define TIMER_PRESCALER REGISTER(BOARD_TIMER_BASE + 0x510u)
#define TIMER_CC0 REGISTER(BOARD_TIMER_BASE + 0x540u)
#define TIMER_CC1 REGISTER(BOARD_TIMER_BASE + 0x544u)

#define MODE_TIMER 0u
#define BITMODE_32 3u
#define INT_COMPARE0 (1u << 16)
#define HALF_PERIOD (1u << 31)
// A comparison that is nearer might be missed while it is set.
#define NEAREST 256u

static uint64_t total;
// The timer's count at the last reading.
static uint32_t last;
// Counts from the last reading to the deadline.
static uint64_t left = UINT64_MAX;

// Takes what was counted so far over into the total.
static void take_count(void) {
    TIMER_CAPTURE1 = 1u;
    const uint32_t now = TIMER_CC1;
    const uint32_t counts = now - last;
    last = now;
    total += ((uint64_t)counts * BOARD_TIMER_MULTIPLIER + BOARD_TIMER_DIVISOR / 2u) /
             BOARD_TIMER_DIVISOR;
    if (left != UINT64_MAX) {
        left = counts < left ? left - counts : 0u;
    }
}

static void set_comparison(void) {
    const uint32_t counts = left < HALF_PERIOD ? (uint32_t)left : HALF_PERIOD;
    TIMER_COMPARED0 = 0u;
    TIMER_CC0 = last + (counts < NEAREST ? NEAREST : counts);
}

void timer_start(void) {
    TIMER_STOP = 1u;
    TIMER_MODE = MODE_TIMER;
    TIMER_BITMODE = BITMODE_32;
    TIMER_PRESCALER = 0u;
    TIMER_INTENSET = INT_COMPARE0;
    enable_interrupt(BOARD_TIMER_IRQ);
    timer_resume();
}

void timer_isr(void) {
    take_count();
    if (left <= NEAREST) {
        left = UINT64_MAX;
        guard_expire();
    }
    set_comparison();
}

uint64_t timer_ticks(void) {
    interrupts_off();
    take_count();
    const uint64_t ticks = total;
    interrupts_on();
    return ticks;
}

void timer_set_deadline(uint32_t us) {
    take_count();
    left = us ? (uint64_t)us * BOARD_TIMER_CLOCK_HZ / 1000000u : UINT64_MAX;
    set_comparison();
}

void timer_pause(void) {
    take_count();
    TIMER_STOP = 1u;
}

// From zero: QEMU's timer, started at a count, adds that count once more.
void timer_resume(void) {
    TIMER_CLEAR = 1u;
    last = 0u;
    set_comparison();
    TIMER_START = 1u;
}
