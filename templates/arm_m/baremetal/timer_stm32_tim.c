// Two of STM32's 32-bit timers that count the same clock up: one every count,
// one every 65536th. Together they are 48 bits wide, without an interrupt that
// would add its own instructions to what is measured.
//
// The difference of two readings is rounded to the nearest tick: where a tick
// of ours is more than two counts, that is exact wherever the first one fell.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define TIM_CR1(base) REGISTER((base) + 0x00u)
#define TIM_EGR(base) REGISTER((base) + 0x14u)
#define TIM_CNT(base) REGISTER((base) + 0x24u)
#define TIM_PSC(base) REGISTER((base) + 0x28u)
#define TIM_ARR(base) REGISTER((base) + 0x2Cu)

#define CR1_ENABLE 1u
#define EGR_UPDATE 1u // takes the prescaler over and begins at zero
#define SLOW_BITS 16

static uint64_t last;
static uint64_t total;
// In counts.
static uint64_t deadline;

static uint64_t count(void) {
    const uint64_t coarse = (uint64_t)TIM_CNT(BOARD_TIMER_SLOW_BASE) << SLOW_BITS;
    const uint32_t fine = TIM_CNT(BOARD_TIMER_BASE);
    // The fine count is the lower part, and far less than half its period
    // before or after the coarse one.
    return coarse + (uint64_t)(int64_t)(int32_t)(fine - (uint32_t)coarse);
}

static void start(uint32_t base, uint32_t divisor) {
    TIM_CR1(base) = 0u;
    TIM_PSC(base) = divisor - 1u;
    TIM_ARR(base) = 0xFFFFFFFFu;
    TIM_EGR(base) = EGR_UPDATE;
    TIM_CR1(base) = CR1_ENABLE;
}

void timer_start(void) {
    REGISTER(BOARD_TIMER_ENABLE_REGISTER) |= BOARD_TIMER_ENABLE_MASK;
    barrier(); // the peripheral answers two bus cycles after its clock is on
    start(BOARD_TIMER_BASE, 1u);
    start(BOARD_TIMER_SLOW_BASE, 1u << SLOW_BITS);
    last = count();
}

uint64_t timer_ticks(void) {
    // 48 bits, continued to 64: the coarse count wraps after days.
    const uint64_t now = count();
    const uint64_t counts = (now - last) & ((1ull << 48) - 1u);
    total += (counts * BOARD_TIMER_MULTIPLIER + BOARD_TIMER_DIVISOR / 2u) / BOARD_TIMER_DIVISOR;
    last = now;
    return total;
}

void timer_pause(void) {
}

void timer_resume(void) {
}

// While there is a deadline SysTick looks at the time. Its instructions count as
// the task's, so it comes as seldom as it can: every 0.8 s at 168 MHz, by an
// eighth of the core's clock.
void timer_isr(void) {
    if (count() >= deadline) {
        SYSTICK_CTRL = 0u;
        guard_expire();
    }
}

void timer_set_deadline(uint32_t us) {
    deadline = count() + (uint64_t)us * BOARD_TIMER_CLOCK_HZ / 1000000u;
    SYSTICK_LOAD = 0x00FFFFFFu;
    SYSTICK_VALUE = 0u;
    SYSTICK_CTRL = us ? 3u : 0u; // the slower clock, interrupt, enable
}
