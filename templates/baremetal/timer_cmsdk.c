// Arm's CMSDK APB timer: 32 bit, counts down, interrupts at zero.
//
// Every reading starts the count anew. On an emulator whose clock advances by
// instructions the time between two readings then depends on nothing but the
// instructions between them, not on where in a tick the first one fell.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "cortex_m.h"
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

void timer_start(void) {
    TIMER_CTRL = 0u;
    TIMER_RELOAD = RELOAD;
    TIMER_VALUE = RELOAD;
    TIMER_INTSTATUS = 1u;
    enable_interrupt(BOARD_TIMER_IRQ);
    TIMER_CTRL = CTRL_ON;
}

void timer_isr(void) {
    TIMER_INTSTATUS = 1u;
    wraps = wraps + 1u;
}

uint64_t timer_ticks(void) {
    interrupts_off();
    uint32_t value = TIMER_VALUE;
    if (TIMER_INTSTATUS & 1u) {
        // It wrapped with interrupts off, before or after the reading.
        TIMER_INTSTATUS = 1u;
        wraps = wraps + 1u;
        value = TIMER_VALUE;
    }
    const uint64_t count = wraps * PERIOD + (RELOAD - value);
    wraps = 0u;
    // QEMU's model shows ceil(elapsed) - 1 counts. With the one back, rounding down is exact where
    // a tick of ours is at least as long as a count.
    total += (count + 1u) * BOARD_TIMER_MULTIPLIER / BOARD_TIMER_DIVISOR;
    const uint64_t ticks = total;
    TIMER_VALUE = RELOAD;
    interrupts_on();
    return ticks;
}

void timer_pause(void) {
    TIMER_CTRL = 0u;
}

void timer_resume(void) {
    TIMER_CTRL = CTRL_ON;
}
