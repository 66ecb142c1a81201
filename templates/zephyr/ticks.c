// Ticks by Zephyr's timing API, which is a core's cycle counter where it has
// one and the kernel's clock where not.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/kernel.h>
#include <zephyr/timing/timing.h>

#include "app_config.h"
#include "port.h"

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
    const timing_t now = timing_counter_get();
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
    last = timing_counter_get();
#if CONFIG_UTVM_COUNTER_BITS < 64
    const uint32_t wrap_ms = (uint32_t)((uint64_t)UINT32_MAX * 1000u / timing_freq_get());
    k_timer_start(&looks, K_MSEC(wrap_ms / 4u), K_MSEC(wrap_ms / 4u));
#endif
}

uint64_t ticks_now(void *context) {
    ARG_UNUSED(context);
    return counts() * UTVM_TICKS_MULTIPLIER / UTVM_TICKS_DIVISOR;
}

uint32_t ticks_per_second(void) {
    return (uint32_t)(timing_freq_get() * UTVM_TICKS_MULTIPLIER / UTVM_TICKS_DIVISOR);
}
