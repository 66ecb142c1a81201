// The core's own counters as ticks, and the interruptor (CLINT) beside it for deadlines.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "port.h"
#include "core.h"
#include "utvm.h"

#define MTIMECMP_LOW REGISTER(BOARD_TIMER_BASE + 0x4000u)
#define MTIMECMP_HIGH REGISTER(BOARD_TIMER_BASE + 0x4004u)
#define MTIME_LOW REGISTER(BOARD_TIMER_BASE + 0xBFF8u)
#define MTIME_HIGH REGISTER(BOARD_TIMER_BASE + 0xBFFCu)

CSR(mcycle)
CSR(mcycleh)
CSR(minstret)
CSR(minstreth)

static uint32_t low(void) {
    return BOARD_TICK_UNIT == UTVM_TICK_UNIT_CYCLES ? read_mcycle() : read_minstret();
}

static uint32_t high(void) {
    return BOARD_TICK_UNIT == UTVM_TICK_UNIT_CYCLES ? read_mcycleh() : read_minstreth();
}

// Off, mtimecmp stays as it is: an emulator whose clock jumps to the next event while the core
// sleeps would jump to the end of time.
void timer_start(void) {
    disable_interrupts(MIE_TIMER);
    WRITE_CSR("mcountinhibit", 0u); // some cores start with their counters off
}

uint64_t timer_ticks(void) {
    uint32_t high_before = high();
    uint32_t count = low();
    const uint32_t high_after = high();
    if (high_after != high_before) {
        count = low();
    }
    return ((uint64_t)high_after << 32 | count) * BOARD_TIMER_MULTIPLIER / BOARD_TIMER_DIVISOR;
}

void timer_set_deadline(uint32_t us) {
    disable_interrupts(MIE_TIMER);
    if (us == 0u) {
        return;
    }
    uint32_t high_now;
    uint32_t low_now;
    do {
        high_now = MTIME_HIGH;
        low_now = MTIME_LOW;
    } while (high_now != MTIME_HIGH);
    const uint64_t alarm =
        ((uint64_t)high_now << 32 | low_now) + (uint64_t)us * BOARD_TIMER_MTIME_HZ / 1000000u;
    MTIMECMP_HIGH = 0xFFFFFFFFu; // never in between
    MTIMECMP_LOW = (uint32_t)alarm;
    MTIMECMP_HIGH = (uint32_t)(alarm >> 32);
    enable_interrupts(MIE_TIMER);
}

void timer_isr(void) {
    disable_interrupts(MIE_TIMER);
    guard_expire();
}

void timer_pause(void) {
}

void timer_resume(void) {
}
