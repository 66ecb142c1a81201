// Ticks by Zephyr's timing API, which is a core's cycle counter where it has
// one and the kernel's clock where not; or by the instructions that a RISC-V
// core counts.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/kernel.h>
#include <zephyr/timing/timing.h>

#include "app_config.h"
#include "port.h"

#if CONFIG_UTVM_MINSTRET_HZ
#include <zephyr/arch/riscv/csr.h>

static timing_t counter(void) {
    // The upper half may change between two reads.
    for (;;) {
        const uint32_t high = csr_read(minstreth);
        const uint32_t low = csr_read(minstret);
        if (high == csr_read(minstreth)) {
            return (uint64_t)high << 32 | low;
        }
    }
}

static uint64_t frequency(void) {
    return CONFIG_UTVM_MINSTRET_HZ;
}
#else
static timing_t counter(void) {
    return timing_counter_get();
}

static uint64_t frequency(void) {
    return timing_freq_get();
}
#endif

static uint64_t count;
static timing_t last;

#if CONFIG_UTVM_COUNTER_BITS < 64
static uint64_t advance(timing_t now) {
    return (uint32_t)now - (uint32_t)last;
}

static void look(struct k_timer *timer);
static K_TIMER_DEFINE(looks, look, NULL);
#else
static uint64_t advance(timing_t now) {
    return now - last;
}
#endif

static uint64_t counts(void) {
    const unsigned int key = irq_lock();
    const timing_t now = counter();
    count += advance(now);
    last = now;
    const uint64_t so_far = count;
    irq_unlock(key);
    return so_far;
}

#if CONFIG_UTVM_COUNTER_BITS < 64
// A counter that wraps must be looked at before it does so twice, however long
// a task runs.
static void look(struct k_timer *timer) {
    ARG_UNUSED(timer);
    (void)counts();
}
#endif

void ticks_start(void) {
    timing_init();
    timing_start();
    last = counter();
#if CONFIG_UTVM_COUNTER_BITS < 64
    const uint32_t wrap_ms = (uint32_t)((uint64_t)UINT32_MAX * 1000u / frequency());
    k_timer_start(&looks, K_MSEC(wrap_ms / 4u), K_MSEC(wrap_ms / 4u));
#endif
}

uint64_t ticks_now(void *context) {
    ARG_UNUSED(context);
    return counts() * UTVM_TICKS_MULTIPLIER / UTVM_TICKS_DIVISOR;
}

uint32_t ticks_per_second(void) {
    return (uint32_t)(frequency() * UTVM_TICKS_MULTIPLIER / UTVM_TICKS_DIVISOR);
}
